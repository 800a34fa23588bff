/* Uses memory like a program that computes with arrays: fills an array, accesses it at random, frees it, and allocates the next
 * one at once. Meanwhile it allocates and frees small blocks. Prints its process number first, and `right` at the end.
 *
 * usage: churn MIB ROUNDS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, SMALL = 4096 };

static uint64_t state = 7;

static size_t below(size_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % n;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    printf("has %d\n", (int)getpid());
    fflush(stdout);
    size_t bytes = strtoul(argv[1], NULL, 10) << 20, pages = bytes / PAGE;
    char **small = calloc(SMALL, sizeof *small);
    if (!small) return 3;
    for (int round = 0, rounds = atoi(argv[2]); round < rounds; round++) {
        char *at = malloc(bytes);
        if (!at) return 3;
        memset(at, round, bytes);
        /* The accesses are near each other, so that many pages are read back soon after their eviction. */
        size_t middle = below(pages);
        for (size_t n = 0; n < pages; n++) {
            size_t page = (middle + below(pages / 3)) % pages;
            if (at[page * PAGE + 8] != (char)round) return 1;
            if (n % 3 == 0) at[page * PAGE] = (char)round;
            if (n % 64 == 0) middle = (middle + 40) % pages;
        }
        for (size_t n = 0; n < SMALL; n++) {
            free(small[n]);
            small[n] = malloc(1 + below(3000));
            if (!small[n]) return 3;
            memset(small[n], 1, 1);
        }
        free(at);
    }
    puts("right");
    return 0;
}
