/* Nanoseconds of a free and a malloc, on each of several threads: of random blocks among 10,000, and of the same block again and
 * again. With another library in LD_PRELOAD it measures that library's functions.
 *
 * cc -O2 -pthread -o /tmp/malloc bench/malloc.c && LD_PRELOAD=target/release/libdeepram_preload.so /tmp/malloc THREADS
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS 10000
#define STEPS 10000000

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *at_random(void *of)
{
    void **blocks = calloc(BLOCKS, sizeof *blocks);
    uint32_t random = 12345 + (uint32_t)(uintptr_t)of;
    for (long n = 0; n < STEPS; n++) {
        random = random * 1664525 + 1013904223;
        void **block = &blocks[(random >> 8) % BLOCKS];
        free(*block);
        *block = malloc(16 + (random >> 20) % 256);
        *(char *)*block = 1;
    }
    for (long n = 0; n < BLOCKS; n++) free(blocks[n]);
    free(blocks);
    return NULL;
}

static void *the_same(void *of)
{
    (void)of;
    for (long n = 0; n < STEPS; n++) {
        void *block = malloc(64);
        __asm__ volatile("" : : "r"(block) : "memory");
        free(block);
    }
    return NULL;
}

static double measure(void *(*body)(void *), long threads)
{
    pthread_t ids[64];
    double begun = now();
    for (long n = 0; n < threads; n++) pthread_create(&ids[n], NULL, body, (void *)n);
    for (long n = 0; n < threads; n++) pthread_join(ids[n], NULL);
    return (now() - begun) * 1e9 / STEPS;
}

int main(int count, char **arguments)
{
    long threads = count > 1 ? atol(arguments[1]) : 1;
    if (threads < 1 || threads > 64) {
        fprintf(stderr, "threads: 1 to 64\n");
        return 2;
    }
    printf("%ld threads: random blocks %.1f ns, the same block %.1f ns\n", threads, measure(at_random, threads),
           measure(the_same, threads));
    return 0;
}
