/* Shared by the programs that use memory page by page and print how much of it is in DRAM. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* Stores the value of round `now` to each page, after checking the value of round `before` (unless negative). */
static void use(volatile char *memory, size_t bytes, int before, int now) {
    for (size_t at = 0; at < bytes; at += PAGE) {
        if (before >= 0 && memory[at] != (char)(at / PAGE + before)) {
            fprintf(stderr, "page %zu is wrong in round %d\n", at / PAGE, now);
            exit(1);
        }
        memory[at] = (char)(at / PAGE + now);
    }
}

/* Prints the number of anonymous pages in DRAM. Returns the exit status for main. */
static int say_pages(void) {
    long all, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld %ld", &all, &resident, &shared) != 3)
        return 2;
    printf("%ld\n", resident - shared);
    return 0;
}
