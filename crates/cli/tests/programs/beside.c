/* Uses paged and unpaged memory, then prints the number of anonymous pages in DRAM.
 * Arguments: bytes of paged memory, bytes of unpaged memory. The unpaged memory is mapped with MAP_STACK. */
#include <sys/mman.h>

#include "pages.h"

enum { STACK = 25 * PAGE, ROUNDS = 6 };

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    size_t paged = strtoul(arguments[1], NULL, 10), beside = strtoul(arguments[2], NULL, 10);
    char *large = malloc(paged);
    size_t mappings = beside / STACK;
    char **stacks = calloc(mappings, sizeof *stacks);
    if (!large || !stacks)
        return 2;
    for (size_t n = 0; n < mappings; n++) {
        stacks[n] = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        if (stacks[n] == MAP_FAILED)
            return 2;
    }
    for (int round = 0; round < ROUNDS; round++) {
        use(large, paged, round - 1, round);
        for (size_t n = 0; n < mappings; n++)
            use(stacks[n], STACK, round - 1, round);
        usleep(150000);
    }
    return say_pages();
}
