/* Uses memory that is mapped by 32 KiB, and some that is mapped small and grows. Says how many anonymous pages are in DRAM then.
 * Arguments: bytes of each. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, SMALL = 8 * PAGE, LOCKED = 256 * PAGE, ROUNDS = 5 };

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(2);
    return at;
}

static void use(volatile char *memory, size_t bytes, int before, int now) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (before >= 0 && memory[at] != (char)(at / PAGE + before)) {
            fprintf(stderr, "page %zu is wrong in round %d\n", at / PAGE, now);
            exit(1);
        }
        memory[at] = (char)(at / PAGE + now);
    }
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    size_t bytes = strtoul(arguments[1], NULL, 10), mappings = bytes / SMALL;
    char **small = calloc(mappings, sizeof *small);
    if (!small)
        return 2;
    /* What the kernel keeps in memory grows as well, and is not paged. */
    char *locked = map(SMALL);
    if (mlock(locked, SMALL) || (locked = mremap(locked, SMALL, LOCKED, MREMAP_MAYMOVE)) == MAP_FAILED)
        return 2;
    char *growing = map(SMALL);
    use(growing, SMALL, -1, 0);
    growing = mremap(growing, SMALL, bytes, MREMAP_MAYMOVE);
    if (growing == MAP_FAILED)
        return 2;
    use(growing, SMALL, 0, 0);
    use(growing + SMALL, bytes - SMALL, -1, 0);
    /* All before any is used: what counts is what may be used. */
    for (size_t n = 0; n < mappings; n++)
        small[n] = map(SMALL);
    for (int round = 0; round < ROUNDS; round++) {
        use(locked, LOCKED, round - 1, round);
        for (size_t n = 0; n < mappings; n++)
            use(small[n], SMALL, round - 1, round);
        if (round > 0) {
            use(growing, SMALL, round - 1, round);
            use(growing + SMALL, bytes - SMALL, round - 1, round);
        }
        /* Every other one goes and comes anew. */
        for (size_t n = round % 2; n < mappings; n += 2) {
            if (munmap(small[n], SMALL))
                return 2;
            small[n] = map(SMALL);
            use(small[n], SMALL, -1, round);
        }
        usleep(150000);
    }
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3)
        return 2;
    printf("%ld\n", resident - shared);
    return 0;
}
