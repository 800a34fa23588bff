/* Several processes whose unpaged memory takes most of the budget, so that hardly any DRAM is left for paged memory. Each
 * process stores across the borders of two pages, at random: one instruction then needs both pages in DRAM at once.
 *
 * usage: across PROCESSES MIB STORES
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

/* The program's own data segment is unpaged memory. */
static char unpaged[6ul << 20];

static int work(size_t bytes, unsigned long stores, uint64_t random)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    memset(unpaged, 1, sizeof unpaged);
    for (unsigned long n = 1; n <= stores; n++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char *border = memory + (1 + random % (bytes / PAGE - 1)) * PAGE;
        __asm__ volatile("movq %0, (%1)" : : "r"(n), "r"(border - 4) : "memory");
        uint64_t back;
        memcpy(&back, border - 4, 8);
        if (back != n) return 4;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    int processes = atoi(argv[1]), right = 0;
    size_t bytes = strtoul(argv[2], NULL, 10) << 20;
    for (int n = 0; n < processes; n++)
        if (fork() == 0) _exit(work(bytes, strtoul(argv[3], NULL, 10), n + 1));
    for (int n = 0, status; n < processes; n++)
        if (wait(&status) > 0 && status == 0) right++;
    printf("%d right\n", right);
    return 0;
}
