/* Uses mappings of 32 KiB, and one mapping that starts small and grows. Then prints the number of anonymous pages in DRAM.
 * Argument: bytes of the small mappings together, and bytes of the growing mapping. */
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
    /* A locked mapping grows too. Locked memory is unpaged. */
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
    /* All mappings exist before the first is used: the library counts accessible memory, used or not. */
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
        /* Every other mapping is unmapped and mapped anew. */
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
