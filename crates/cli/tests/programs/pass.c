/* A child reads shared memory once that its parent has filled. Prints the number of pages for which the child waited for the
 * drive (major faults).
 *
 * usage: pass MIB
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    size_t pages = strtoul(argv[1], NULL, 10) << 8;
    volatile unsigned long *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 3;
    for (size_t page = 0; page < pages; page++) at[page * PAGE / sizeof *at] = page + 1;
    pid_t child = fork();
    if (child < 0) return 3;
    if (child == 0) {
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        long before = usage.ru_majflt;
        for (size_t page = 0; page < pages; page++)
            if (at[page * PAGE / sizeof *at] != page + 1) _exit(1);
        getrusage(RUSAGE_SELF, &usage);
        printf("%ld\n", usage.ru_majflt - before);
        fflush(stdout);
        _exit(0);
    }
    int status;
    return wait(&status) == child && status == 0 ? 0 : 1;
}
