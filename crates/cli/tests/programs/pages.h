/* What programs share that use memory page by page and say how much of it is in DRAM. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* Gives each page the value of this round, after a look at that of the round `before`, if that is one. */
static void use(volatile char *memory, size_t bytes, int before, int now) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (before >= 0 && memory[at] != (char)(at / PAGE + before)) {
            fprintf(stderr, "page %zu is wrong in round %d\n", at / PAGE, now);
            exit(1);
        }
        memory[at] = (char)(at / PAGE + now);
    }
}

/* Prints the number of anonymous pages in DRAM; the exit status of who does this last. */
static int say_pages(void) {
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3)
        return 2;
    printf("%ld\n", resident - shared);
    return 0;
}
