/* Allocates, resizes and frees blocks by every function of malloc's family, and compares their contents with what was stored.
 * Threads start and end, free blocks of one another, and fork children that do the same.
 *
 * usage: blocks check SEED THREADS STEPS
 *        blocks fill BYTES     fills BYTES with blocks of several sizes, frees them, fills BYTES with larger ones, and prints its
 *                              peak memory in KiB
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 2000
#define ROUNDS 3 /* generations of threads */

struct block {
    unsigned char *at;
    size_t size;
    unsigned char value;
};

struct worker {
    uint64_t random;
    unsigned long steps;
    struct block slots[SLOTS];
};

static unsigned long long seed;
/* Blocks on their way to other threads. */
static struct block mailbox[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

static void fail(const char *what, size_t size)
{
    fprintf(stderr, "seed %llu: %s, block of %zu bytes\n", seed, what, size);
    _exit(1);
}

/* Most blocks are small, few are large. */
static size_t any_size(struct worker *w)
{
    static const size_t most[] = {64, 64, 300, 300, 1100, 5000, 40000, 300000};
    size_t limit = next(w) % 400 == 0 ? 3 << 20 : most[next(w) % 8];
    return next(w) % limit;
}

static void check(const struct block *b, size_t size)
{
    for (size_t n = 0; n < size; n++)
        if (b->at[n] != b->value) fail("other contents", b->size);
}

static void store(struct worker *w, struct block *b)
{
    b->value = (unsigned char)next(w);
    memset(b->at, b->value, b->size);
}

static void allocate(struct worker *w, struct block *b)
{
    size_t align = sizeof(void *) << next(w) % 11;
    b->size = any_size(w);
    switch (next(w) % 5) {
    case 0:
        b->at = calloc(1, b->size);
        for (size_t n = 0; b->at && n < b->size; n++)
            if (b->at[n]) fail("calloc: not zeros", b->size);
        align = 16;
        break;
    case 1:
        b->at = aligned_alloc(align, b->size);
        break;
    case 2:
        if (posix_memalign((void **)&b->at, align, b->size)) b->at = NULL;
        break;
    default:
        b->at = malloc(b->size);
        align = 16;
    }
    if (!b->at) fail("no memory", b->size);
    if ((uintptr_t)b->at % align) fail("not aligned", b->size);
    if (malloc_usable_size(b->at) < b->size) fail("usable size too small", b->size);
    store(w, b);
}

static void release(struct block *b)
{
    check(b, b->size);
    free(b->at);
    b->at = NULL;
}

static void step(struct worker *w)
{
    struct block *b = &w->slots[next(w) % SLOTS];
    if (!b->at) {
        allocate(w, b);
        return;
    }
    size_t size;
    switch (next(w) % 8) {
    case 0: /* to another thread, and one from there */
        pthread_mutex_lock(&lock);
        struct block *other = &mailbox[next(w) % 64];
        struct block held = *other;
        *other = *b;
        *b = held;
        pthread_mutex_unlock(&lock);
        break;
    case 1:
    case 2:
        size = any_size(w) + 1;
        b->at = realloc(b->at, size);
        if (!b->at) fail("no memory", size);
        check(b, size < b->size ? size : b->size);
        b->size = size;
        store(w, b);
        break;
    default:
        release(b);
    }
}

static void *work(void *of)
{
    struct worker *w = of;
    for (unsigned long n = 0; n < w->steps; n++) step(w);
    for (size_t n = 0; n < SLOTS; n++)
        if (w->slots[n].at) release(&w->slots[n]);
    return NULL;
}

static void run(unsigned threads, unsigned long steps)
{
    static struct worker workers[16];
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t ids[16];
        for (unsigned n = 0; n < threads; n++) {
            workers[n].random = (seed + n + 1) * 0x9e3779b97f4a7c15ull + round;
            workers[n].steps = steps;
            if (pthread_create(&ids[n], NULL, work, &workers[n])) fail("no thread", 0);
        }
        /* Children allocate, while at the fork other threads were allocating. */
        for (unsigned n = 0; n < 5; n++) {
            pid_t child = fork();
            if (child == 0) {
                static struct worker own;
                /* A thread that the child does not have may have held the lock. */
                pthread_mutex_init(&lock, NULL);
                memset(mailbox, 0, sizeof mailbox);
                own.random = seed * 31 + n + 1;
                own.steps = steps / 10;
                work(&own);
                _exit(0);
            }
            int status;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("child failed", 0);
        }
        for (unsigned n = 0; n < threads; n++) pthread_join(ids[n], NULL);
    }
    for (unsigned n = 0; n < 64; n++)
        if (mailbox[n].at) release(&mailbox[n]);
    free(NULL);
    volatile size_t huge = (size_t)-8;
    if (malloc(huge) || calloc(huge / 8, 16) || realloc(NULL, huge)) fail("impossible size", huge);
    /* Sizes whose sum with what an arena uses exceeds the largest number. */
    for (unsigned bits = 4; bits < 64; bits++) {
        volatile size_t size = -((size_t)1 << bits);
        if (aligned_alloc(8192, size)) fail("impossible size, aligned", size);
    }
    void *small = malloc(1);
    if (realloc(small, huge)) fail("impossible size", huge);
    if (realloc(small, 0)) fail("realloc to nothing: not null", 0);
}

static void fill(size_t bytes)
{
    static const size_t sizes[] = {72, 270, 1040, 4368, 9000, 20500};
    size_t count = bytes / 72, used = 0, n;
    void **blocks = calloc(count, sizeof(void *));
    for (n = 0; used < bytes; n++) {
        size_t size = sizes[n % 6];
        blocks[n] = malloc(size);
        if (!blocks[n]) fail("no memory", size);
        memset(blocks[n], 1, size);
        used += size;
    }
    while (n-- > 0) free(blocks[n]);
    for (n = used = 0; used < bytes; n++, used += 50000) memset(blocks[n] = malloc(50000), 2, 50000);
    while (n-- > 0) free(blocks[n]);
    free(blocks);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld\n", usage.ru_maxrss);
}

int main(int count, char **arguments)
{
    if (count == 3 && !strcmp(arguments[1], "fill")) {
        fill(strtoull(arguments[2], NULL, 10));
        return 0;
    }
    if (count != 5) return 2;
    seed = strtoull(arguments[2], NULL, 10);
    run((unsigned)atoi(arguments[3]), strtoul(arguments[4], NULL, 10));
    printf("right\n");
    return 0;
}
