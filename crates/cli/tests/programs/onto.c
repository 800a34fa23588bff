/* One thread moves memory onto existing mappings and to free addresses (`mremap`). Meanwhile other threads map, unmap and
 * reserve memory. Another thread may get the source addresses of a move at once, but never the target addresses.
 *
 * usage: onto ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul
#define LEN (2ul << 20)
#define RW (PROT_READ | PROT_WRITE)

static atomic_int over;

static char *map(int prot)
{
    char *at = mmap(NULL, LEN, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    return at;
}

static void fill(char *at, uint64_t value)
{
    for (size_t n = 0; n < LEN; n += PAGE) *(uint64_t *)(at + n) = value + n;
}

static void check(const char *whose, char *at, uint64_t value)
{
    for (size_t n = 0; n < LEN; n += PAGE) {
        uint64_t found = *(volatile uint64_t *)(at + n);
        if (found == value + n) continue;
        printf("%s: %lx at page %zu, not %lx\n", whose, found, n / PAGE, value + n);
        exit(1);
    }
}

static void *maps(void *unused)
{
    for (uint64_t round = 1; !over; round++) {
        char *at = map(RW);
        fill(at, round << 40);
        check("mapped", at, round << 40);
        munmap(at, LEN);
    }
    return unused;
}

static void *reserves(void *unused)
{
    while (!over) {
        char *at = map(PROT_NONE);
        munmap(at, LEN);
    }
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    uint64_t rounds = strtoull(argv[1], NULL, 10);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, maps, NULL);
    pthread_create(&threads[1], NULL, reserves, NULL);
    for (uint64_t round = 1; round <= rounds; round++) {
        char *from = map(RW), *to = map(RW);
        fill(from, round << 20);
        if (mremap(from, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) abort();
        check("moved onto", to, round << 20);
        char *longer = mremap(to, LEN, 2 * LEN, MREMAP_MAYMOVE);
        if (longer == MAP_FAILED || mprotect(longer, 2 * LEN, RW)) abort();
        check("moved", longer, round << 20);
        munmap(longer, 2 * LEN);
    }
    over = 1;
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    puts("right");
    return 0;
}
