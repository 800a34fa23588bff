/* Memory calls on paged memory. The program prints the results of the calls, and the output must be the same with and
 * without paging.
 *
 * usage: calls BYTES
 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static sigjmp_buf back;
static uint64_t *filler;
static size_t bytes;

static void caught(int number) { siglongjmp(back, number); }

/* Returns the signal that a load from `at` raises, or 0. */
static int load(volatile void *at)
{
    int number = sigsetjmp(back, 1);
    if (!number) (void)*(volatile char *)at;
    return number;
}

static int stores(volatile void *at)
{
    int number = sigsetjmp(back, 1);
    if (!number) *(volatile char *)at = 1;
    return number;
}

/* Stores to all filler pages, so that other pages are evicted. */
static void push(void)
{
    for (size_t n = 0; n < bytes / 8; n += PAGE / 8) filler[n]++;
}

static char *map(size_t len, int flags)
{
    char *at = mmap(NULL, len, RW, flags | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

static void fill(char *at, size_t len, unsigned first)
{
    for (size_t n = 0; n < len; n += PAGE) *(uint64_t *)(at + n) = first + n / PAGE;
}

static const char *holds(char *at, size_t len, unsigned first)
{
    for (size_t n = 0; n < len; n += PAGE)
        if (*(uint64_t *)(at + n) != first + n / PAGE) return "lost";
    return "kept";
}

static const char *zeros(char *at, size_t len)
{
    for (size_t n = 0; n < len; n++)
        if (at[n]) return "not zeros";
    return "zeros";
}

#define SAY(what, call)                                   \
    do {                                                  \
        errno = 0;                                        \
        long result = (long)(call);                       \
        printf("%s: %ld %d\n", what, result, errno);      \
    } while (0)

static void advice(void)
{
    size_t len = 4 * MIB;
    char *at = map(len, MAP_PRIVATE);
    fill(at, len, 1);
    push();
    SAY("populate read", madvise(at, len, MADV_POPULATE_READ));
    SAY("populate write", madvise(at, len, MADV_POPULATE_WRITE));
    SAY("huge pages", madvise(at, len, MADV_HUGEPAGE));
    SAY("no huge pages", madvise(at, len, MADV_NOHUGEPAGE));
    SAY("cold", madvise(at, len, MADV_COLD));
    SAY("page out", madvise(at, len, MADV_PAGEOUT));
    SAY("will need", madvise(at, len, MADV_WILLNEED));
    SAY("random", madvise(at, len, MADV_RANDOM));
    SAY("remove", madvise(at, len, MADV_REMOVE));
    SAY("unknown", madvise(at, len, 9999));
    SAY("odd address", madvise(at + 1, len, MADV_DONTNEED));
    SAY("posix", posix_madvise(at, len, POSIX_MADV_DONTNEED));
    printf("contents are %s\n", holds(at, len, 1));
    SAY("free", madvise(at, MIB, MADV_FREE));
    fill(at, MIB, 9);
    push();
    printf("stored to after free: %s\n", holds(at, MIB, 9));
    munmap(at + MIB, MIB);
    SAY("across a hole", madvise(at, len, MADV_DONTNEED));
    printf("on both sides: %s, %s\n", zeros(at, MIB), zeros(at + 2 * MIB, 2 * MIB));
    munmap(at, len);
}

static void residency(void)
{
    size_t len = 2 * MIB;
    unsigned char is[512];
    char *at = map(len, MAP_PRIVATE);
    SAY("mincore", mincore(at, len, is));
    memset(at, 1, PAGE);
    SAY("mincore of one page", mincore(at, PAGE, is));
    printf("just used: %d\n", is[0] & 1);
    SAY("mincore, odd address", mincore(at + 1, PAGE, is));
    munmap(at + MIB, MIB);
    SAY("mincore across a hole", mincore(at, len, is));
    munmap(at, len);
    SAY("mlockall, no flags", mlockall(0));
    SAY("mlockall, unknown flags", mlockall(64));
    at = map(len, MAP_PRIVATE);
    fill(at, len, 3);
    SAY("mlock", mlock(at, MIB));
    SAY("mlock2", mlock2(at + MIB, MIB, MLOCK_ONFAULT));
    push();
    printf("locked: %s\n", holds(at, len, 3));
    mincore(at, MIB, is);
    int all = 1;
    for (int n = 0; n < 256; n++) all &= is[n];
    printf("all there: %d\n", all);
    SAY("munlockall", munlockall());
    munmap(at + MIB, MIB);
    SAY("mlock across a hole", mlock(at, len));
    SAY("munlock", munlock(at, MIB));
    munmap(at, len);
}

static void elsewhere(void)
{
    size_t len = 2 * MIB;
    char *at = map(len, MAP_PRIVATE), *to = map(len, MAP_PRIVATE);
    fill(at, len, 5);
    push();
    struct iovec from = {at, len}, into = {to, len};
    SAY("process_vm_readv", process_vm_readv(getpid(), &into, 1, &from, 1, 0));
    printf("read: %s\n", holds(to, len, 5));
    fill(at, len, 6);
    push();
    SAY("process_vm_writev", process_vm_writev(getpid(), &from, 1, &into, 1, 0));
    printf("written: %s\n", holds(to, len, 6));
    munmap(at, len);
    munmap(to, len);
    int id = shmget(IPC_PRIVATE, len, 0600);
    char *segment = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    fill(segment, len, 8);
    printf("shmat: %s\n", holds(segment, len, 8));
    SAY("shmdt", shmdt(segment));
    char *grown = sbrk(2 * MIB);
    fill(grown, 2 * MIB - PAGE, 4);
    push();
    printf("sbrk: %s\n", holds(grown, 2 * MIB - PAGE, 4));
    sbrk(-2 * (long)MIB);
}

static void protection(void)
{
    size_t len = 2 * MIB;
    char *at = map(len, MAP_PRIVATE);
    fill(at, len, 7);
    SAY("pkey_mprotect", pkey_mprotect(at, len, PROT_NONE, -1));
    push();
    printf("a load: %d\n", load(at));
    SAY("pkey_mprotect", pkey_mprotect(at, len, PROT_READ, 0));
    printf("a load: %d, a store: %d, contents %s\n", load(at), stores(at), holds(at, len, 7));
    SAY("pkey_mprotect", pkey_mprotect(at, len, RW, -1));
    printf("contents %s\n", holds(at, len, 7));
    int key = pkey_alloc(0, 0);
    if (key > 0) {
        SAY("pkey_mprotect", pkey_mprotect(at, len, RW, key));
        pkey_set(key, PKEY_DISABLE_ACCESS);
        push();
        printf("a load: %d\n", load(at));
        SAY("mprotect", mprotect(at, len, PROT_READ));
        push();
        printf("a load: %d\n", load(at));
        pkey_set(key, 0);
        printf("contents %s\n", holds(at, len, 7));
    }
    SAY("unknown key", pkey_mprotect(at, len, RW, 1000));
    printf("contents %s\n", holds(at, len, 7));
    munmap(at + MIB, MIB);
    SAY("mprotect across a hole", mprotect(at, len, RW));
    munmap(at, len);
}

static void moved(void)
{
    size_t len = 2 * MIB;
    char *at = map(len, MAP_PRIVATE);
    fill(at, len, 2);
    push();
    char *to = mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    printf("moved: %d %s, behind it %s\n", to != MAP_FAILED && to != at, holds(to, len, 2), zeros(at, len));
    fill(at, len, 3);
    push();
    printf("both are there: %s, %s\n", holds(to, len, 2), holds(at, len, 3));
    SAY("another length", (long)mremap(at, len, MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) == -1);
    SAY("no move", (long)mremap(at, len, len, MREMAP_DONTUNMAP, NULL) == -1);
    SAY("twice", (long)mremap(at, 0, len, MREMAP_MAYMOVE) == -1);
    SAY("remap_file_pages", remap_file_pages(at, MIB, 0, 0, 0));
    munmap(at, len);
    munmap(to, len);
}

static void shared(void)
{
    size_t len = 8 * MIB;
    char *at = map(len, MAP_SHARED);
    fill(at, len, 1);
    push();
    SAY("shared, not needed", madvise(at, len, MADV_DONTNEED));
    printf("contents are %s\n", holds(at, len, 1));
    SAY("shared, removed", madvise(at, MIB, MADV_REMOVE));
    printf("removed: %s; behind: %s\n", zeros(at, MIB), holds(at + MIB, len - MIB, 1 + MIB / PAGE));
    SAY("shared, free", madvise(at, MIB, MADV_FREE));
    SAY("shared, wiped at fork", madvise(at, MIB, MADV_WIPEONFORK));
    char *to = mremap(at, len, 2 * len, MREMAP_MAYMOVE);
    printf("grown: %s, %s\n", zeros(to, MIB), holds(to + MIB, len - MIB, 1 + MIB / PAGE));
    printf("beyond its end: %d\n", load(to + len));
    char *twice = mremap(to, 0, len, MREMAP_MAYMOVE);
    fill(to, len, 3);
    push();
    printf("a second time: %s\n", holds(twice, len, 3));
    munmap(to + MIB, MIB);
    if (mmap(to + 2 * MIB, MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) abort();
    printf("mapped over: %s\n", zeros(to + 2 * MIB, MIB));
    fill(to + 2 * MIB, MIB, 4);
    push();
    printf("in parts: %s, %s, %s\n", holds(to, MIB, 3), holds(to + 2 * MIB, MIB, 4),
           holds(to + 3 * MIB, len - 3 * MIB, 3 + 3 * MIB / PAGE));
    printf("the other is whole: %s\n", holds(twice, len, 3));
    SAY("shared over private", mmap(to + 2 * MIB, MIB, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
    printf("is new: %s\n", zeros(to + 2 * MIB, MIB));
    SAY("unreadable", mprotect(twice, len, PROT_NONE));
    push();
    printf("a load: %d\n", load(twice));
    SAY("readable", mprotect(twice, len, PROT_READ));
    printf("contents are %s\n", holds(twice, len, 3));
    SAY("locked", mlock(twice, 64 * PAGE));
    munmap(to, 2 * len);
    push();
    printf("the other is whole: %s\n", holds(twice, len, 3));
    munmap(twice, len);
    SAY("both kinds", (long)mmap(NULL, MIB, RW, MAP_SHARED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1);
    SAY("neither", (long)mmap(NULL, MIB, RW, MAP_ANONYMOUS, -1, 0) == -1);
    SAY("no bytes", (long)mmap(NULL, 0, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == -1);
}

/* A call that the kernel refuses leaves memory unchanged. */
static void refused(void)
{
    size_t len = 2 * MIB;
    int pipes[2], flags = MAP_FIXED | MAP_PRIVATE;
    if (pipe(pipes)) abort();
    for (int n = 0; n < 2; n++) {
        char *at = map(len, n ? MAP_SHARED : MAP_PRIVATE), *to = map(len, n ? MAP_SHARED : MAP_PRIVATE);
        fill(at, len, 1);
        fill(to, len, 2);
        push();
        SAY("no such descriptor", mmap(at, len, RW, flags, 9999, 0) == MAP_FAILED);
        SAY("a pipe", mmap(at, len, RW, flags, pipes[0], 0) == MAP_FAILED);
        SAY("onto itself", mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at + MIB) == MAP_FAILED);
        SAY("may not move", mremap(at, len, len, MREMAP_FIXED, to) == MAP_FAILED);
        SAY("to no page", mremap(at, len, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to + 1) == MAP_FAILED);
        SAY("no such flag", mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED | 64, to) == MAP_FAILED);
        SAY("unmap no page", munmap(at + 1, MIB));
        SAY("unmap nothing", munmap(at, 0));
        push();
        printf("nothing has changed: %s, %s\n", holds(at, len, 1), holds(to, len, 2));
        int keep = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        if (!n) SAY("another length", mremap(at, len, MIB, keep, to) == MAP_FAILED);
        SAY("shorter, elsewhere", mremap(at, len, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
        push();
        printf("half of it: %s; behind: %s\n", holds(to, MIB, 1), holds(to + MIB, MIB, 2 + MIB / PAGE));
        munmap(to, len);
    }
    char *at = map(len, MAP_PRIVATE), *to = map(len, MAP_PRIVATE);
    fill(at, len, 3);
    fill(to, len, 4);
    SAY("sealed", syscall(462, at, len, 0));
    if (!errno) {
        push();
        SAY("unmapped", munmap(at, len));
        SAY("mapped over", mmap(at, MIB, RW, flags | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
        SAY("moved", mremap(at, MIB, 2 * MIB, MREMAP_MAYMOVE) == MAP_FAILED);
        SAY("shorter", mremap(at, len, MIB, 0) == MAP_FAILED);
        SAY("onto another", mremap(at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED);
        SAY("the other is there", msync(to, len, MS_ASYNC));
        if (!errno) printf("and holds %s\n", holds(to, len, 4));
        push();
        printf("contents are %s\n", holds(at, len, 3));
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    setbuf(stdout, NULL);
    signal(SIGSEGV, caught);
    signal(SIGBUS, caught);
    bytes = strtoull(argv[1], NULL, 10);
    filler = malloc(bytes);
    advice();
    residency();
    elsewhere();
    protection();
    moved();
    shared();
    refused();
    return 0;
}
