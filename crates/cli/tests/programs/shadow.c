/* Makes every memory call that `deepram run` interposes, at random, and compares memory with a shadow copy: one word for each
 * page, which is too small to be paged. Several threads work at the same time, each on its own regions. Forked children check
 * and change their copies of the memory.
 *
 * usage: shadow SEED THREADS STEPS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define REGIONS 6
#define MOST (2048ul) /* maximum pages of a region */

struct region {
    char *at;
    size_t pages;
    int heap;         /* from malloc, not from mmap */
    int patched;      /* made of several mappings, which mremap does not take */
    uint64_t *shadow; /* first word of each page */
};

struct worker {
    uint64_t random;
    unsigned number;
    unsigned long steps;
    struct region regions[REGIONS];
};

static unsigned long long seed;

/* Makes a call by the C library's function and by the system call's number alternately. */
static _Thread_local unsigned turn;
#define BY_TURNS(call, number, ...) (turn++ % 2 ? (call)(__VA_ARGS__) : (__typeof__((call)(__VA_ARGS__)))syscall(number, __VA_ARGS__))
#define mmap(...) BY_TURNS(mmap, SYS_mmap, __VA_ARGS__)
#define munmap(...) BY_TURNS(munmap, SYS_munmap, __VA_ARGS__)
#define mremap(...) BY_TURNS(mremap, SYS_mremap, __VA_ARGS__)
#define mprotect(...) BY_TURNS(mprotect, SYS_mprotect, __VA_ARGS__)
#define madvise(...) BY_TURNS(madvise, SYS_madvise, __VA_ARGS__)
#define mlock(...) BY_TURNS(mlock, SYS_mlock, __VA_ARGS__)
#define munlock(...) BY_TURNS(munlock, SYS_munlock, __VA_ARGS__)
#define fork() (turn++ % 2 ? fork() : (pid_t)syscall(SYS_fork))

static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static void fail(struct worker *w, const char *what, size_t page, uint64_t got, uint64_t wanted)
{
    fprintf(stderr, "seed %llu thread %u: %s: page %zu holds %llx, should hold %llx (errno %d)\n", seed, w->number, what,
            page, (unsigned long long)got, (unsigned long long)wanted, errno);
    _exit(1);
}

static uint64_t *word(struct region *r, size_t page) { return (uint64_t *)(r->at + page * PAGE); }

static void check(struct worker *w, struct region *r, const char *what)
{
    for (size_t page = 0; page < r->pages; page++)
        if (*word(r, page) != r->shadow[page]) fail(w, what, page, *word(r, page), r->shadow[page]);
}

static void fill(struct worker *w, struct region *r)
{
    for (size_t page = 0; page < r->pages; page++) *word(r, page) = r->shadow[page] = next(w);
}

static void give_back(struct region *r)
{
    if (!r->at) return;
    if (r->heap) free(r->at);
    else munmap(r->at, r->pages * PAGE);
    r->at = NULL;
}

static void make(struct worker *w, struct region *r)
{
    r->pages = 70 + next(w) % (MOST / 2);
    r->heap = next(w) % 3 == 0;
    r->patched = 0;
    size_t len = r->pages * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (r->heap) {
        if (posix_memalign((void **)&r->at, PAGE, len)) abort();
        memset(r->at, 0, len);
    } else if (next(w) % 4 == 0) {
        /* The region is reserved first (PROT_NONE) and made accessible later. */
        r->at = mmap(NULL, len, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
        if (r->at == MAP_FAILED || mprotect(r->at, len, PROT_READ | PROT_WRITE)) abort();
    } else {
        r->at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (r->at == MAP_FAILED) abort();
    }
    memset(r->shadow, 0, MOST * 8);
}

/* The kernel writes to and reads from pages that may or may not be in DRAM. */
static void by_kernel(struct worker *w, struct region *r)
{
    int ends[2];
    size_t page = next(w) % r->pages, other = next(w) % r->pages;
    if (pipe(ends)) abort();
    uint64_t value = next(w);
    if (write(ends[1], &value, 8) != 8) abort();
    if (read(ends[0], word(r, page), 8) != 8) fail(w, "read", page, errno, 8);
    r->shadow[page] = value;
    struct iovec parts[1] = {{word(r, other), 8}};
    if (writev(ends[1], parts, 1) != 8) fail(w, "writev", other, errno, 8);
    if (read(ends[0], &value, 8) != 8 || value != r->shadow[other]) fail(w, "writev", other, value, r->shadow[other]);
    close(ends[0]);
    close(ends[1]);
}

static void forked(struct worker *w)
{
    pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
        for (int n = 0; n < REGIONS; n++) {
            struct region *r = &w->regions[n];
            if (!r->at) continue;
            check(w, r, "in a child");
            fill(w, r);
            check(w, r, "in a child, stored to");
            give_back(r);
        }
        _exit(0);
    }
    for (int n = 0; n < REGIONS; n++)
        if (w->regions[n].at && next(w) % 2) fill(w, &w->regions[n]);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "seed %llu thread %u: a child ended with %x\n", seed, w->number, status);
        _exit(1);
    }
}

static void step(struct worker *w)
{
    struct region *r = &w->regions[next(w) % REGIONS];
    if (!r->at) {
        make(w, r);
        return;
    }
    size_t first = next(w) % r->pages, count = 1 + next(w) % (r->pages - first);
    char *at = r->at + first * PAGE;
    size_t len = count * PAGE;
    switch (next(w) % 16) {
    case 0:
        check(w, r, "whole region");
        give_back(r);
        break;
    case 1: case 2:
        for (size_t page = first; page < first + count; page++) *word(r, page) = r->shadow[page] = next(w);
        break;
    case 3: case 4:
        for (int n = 0; n < 200; n++) {
            size_t page = next(w) % r->pages;
            if (*word(r, page) != r->shadow[page]) fail(w, "load", page, *word(r, page), r->shadow[page]);
            if (n % 3 == 0) *word(r, page) = r->shadow[page] = next(w);
        }
        break;
    case 5:
        if (madvise(at, len, MADV_DONTNEED)) abort();
        memset(&r->shadow[first], 0, count * 8);
        break;
    case 6:
        if (madvise(at, len, next(w) % 2 ? MADV_WILLNEED : MADV_PAGEOUT)) abort();
        break;
    case 7:
        if (!r->heap) r->patched = 1;
        if (mprotect(at, len, PROT_NONE)) abort();
        if (next(w) % 2) madvise(at, len, MADV_COLD);
        if (mprotect(at, len, PROT_READ)) abort();
        for (size_t page = first; page < first + count; page++)
            if (*word(r, page) != r->shadow[page]) fail(w, "after mprotect", page, *word(r, page), r->shadow[page]);
        if (mprotect(at, len, PROT_READ | PROT_WRITE)) abort();
        break;
    case 8: { /* grows or shrinks the region */
        size_t pages = 70 + next(w) % (MOST - 70);
        if (r->patched) break;
        char *new = r->heap ? realloc(r->at, pages * PAGE) : mremap(r->at, r->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        if (!new || new == MAP_FAILED) fail(w, "mremap or realloc", r->pages, errno, pages);
        r->at = new;
        for (size_t page = r->pages; page < pages; page++) {
            if (r->heap) *word(r, page) = 0;
            r->shadow[page] = 0;
        }
        r->pages = pages;
        if ((uintptr_t)new % PAGE) { /* realloc need not keep the alignment: then the region is freed */
            for (size_t page = 0; page < pages; page++)
                if (*(uint64_t *)(new + page * PAGE) != r->shadow[page]) fail(w, "realloc", page, 0, r->shadow[page]);
            give_back(r);
        }
        break;
    }
    case 9: /* unmaps a part in the middle, and maps new memory into the hole */
        if (r->heap) break;
        r->patched = 1;
        if (munmap(at, len)) abort();
        if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != at) {
            /* Another thread has mapped memory into the hole meanwhile. */
            if (errno != EEXIST) abort();
            if (first && munmap(r->at, first * PAGE)) abort();
            if (first + count < r->pages && munmap(at + len, (r->pages - first - count) * PAGE)) abort();
            r->at = NULL;
            break;
        }
        memset(&r->shadow[first], 0, count * 8);
        break;
    case 10: /* maps new memory over the old */
        if (r->heap) break;
        r->patched = 1;
        if (mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != at) abort();
        memset(&r->shadow[first], 0, count * 8);
        break;
    case 11: case 12:
        by_kernel(w, r);
        break;
    case 13: {
        char *copy = calloc(count, PAGE);
        memcpy(copy, at, len);
        for (size_t page = 0; page < count; page++)
            if (*(uint64_t *)(copy + page * PAGE) != r->shadow[first + page])
                fail(w, "copy", first + page, *(uint64_t *)(copy + page * PAGE), r->shadow[first + page]);
        free(copy);
        break;
    }
    case 14:
        if (mlock(at, len > 16 * PAGE ? 16 * PAGE : len)) abort();
        munlock(at, len);
        break;
    case 15:
        if (next(w) % 8 == 0) forked(w);
        break;
    }
}

static void *work(void *of)
{
    struct worker *w = of;
    for (int n = 0; n < REGIONS; n++) w->regions[n].shadow = calloc(MOST, 8);
    for (unsigned long n = 0; n < w->steps; n++) step(w);
    for (int n = 0; n < REGIONS; n++) {
        if (w->regions[n].at) check(w, &w->regions[n], "at the end");
        give_back(&w->regions[n]);
        free(w->regions[n].shadow);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    seed = strtoull(argv[1], NULL, 10);
    int threads = atoi(argv[2]);
    pthread_t ids[16];
    static struct worker workers[16];
    for (int n = 0; n < threads; n++) {
        workers[n].random = seed * 0x9E3779B97F4A7C15ull + (uint64_t)(n + 1) * 0xD1B54A32D192ED03ull;
        workers[n].number = (unsigned)n;
        workers[n].steps = strtoul(argv[3], NULL, 10);
        if (pthread_create(&ids[n], NULL, work, &workers[n])) return 3;
    }
    for (int n = 0; n < threads; n++) pthread_join(ids[n], NULL);
    puts("right");
    return 0;
}
