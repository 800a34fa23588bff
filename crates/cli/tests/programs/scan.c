/* Fills MIB of memory and scans it forwards ROUNDS times. With a third argument it then prints `ready` and goes on scanning
 * until its standard input ends.
 *
 * usage: scan MIB ROUNDS [wait]
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 4096ul

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    size_t pages = strtoul(argv[1], NULL, 10) << 8;
    volatile unsigned long *at = malloc(pages * PAGE);
    if (!at) return 3;
    for (size_t page = 0; page < pages; page++) at[page * PAGE / sizeof *at] = page;
    struct pollfd input = {0, POLLIN, 0};
    for (unsigned long round = strtoul(argv[2], NULL, 10), said = 0;;) {
        for (size_t page = 0; page < pages; page++)
            if (at[page * PAGE / sizeof *at] != page) return 1;
        if (round > 0 && --round > 0) continue;
        if (argc < 4) break;
        if (!said) puts("ready"), fflush(stdout), said = 1;
        if (poll(&input, 1, 0) > 0) break;
    }
    puts("right");
    return 0;
}
