/* Forks processes that read the same unpaged memory, and each go over paged memory of their own many times.
 *
 * usage: inherit PROCESSES UNPAGED PAGED ROUNDS (memory in KiB)
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char unpaged[64 << 20];

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    size_t bytes = strtoul(argv[3], NULL, 10) << 10;
    memset(unpaged, 1, strtoul(argv[2], NULL, 10) << 10);
    for (int process = atoi(argv[1]); process > 0; process--) {
        if (fork()) continue;
        volatile char *paged = malloc(bytes);
        if (!paged) _exit(1);
        for (int round = atoi(argv[4]); round > 0; round--)
            for (size_t at = 0; at < bytes; at += PAGE) paged[at]++;
        _exit(0);
    }
    for (int status; wait(&status) > 0;)
        if (status) return 1;
    return 0;
}
