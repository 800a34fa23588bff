/* Uses memory that is paged and memory that is not, and says how many anonymous pages are in DRAM then.
 * Arguments: bytes of each; those that are not paged are mapped as stacks are. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 25 * PAGE, ROUNDS = 6 };

static void use(volatile char *memory, size_t bytes, int round) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (round > 0 && memory[at] != (char)(at / PAGE + round - 1)) {
            fprintf(stderr, "page %zu is wrong in round %d\n", at / PAGE, round);
            exit(1);
        }
        memory[at] = (char)(at / PAGE + round);
    }
}

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
        use(large, paged, round);
        for (size_t n = 0; n < mappings; n++)
            use(stacks[n], STACK, round);
        usleep(150000);
    }
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3)
        return 2;
    printf("%ld\n", resident - shared);
    return 0;
}
