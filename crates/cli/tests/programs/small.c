/* Uses memory that is mapped by 32 KiB, and some that is mapped small and grows. Says how many anonymous pages are in DRAM then.
 * Arguments: bytes of each. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "pages.h"

enum { SMALL = 8 * PAGE, LOCKED = 256 * PAGE, ROUNDS = 5 };

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        exit(2);
    return at;
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
    return say_pages();
}
