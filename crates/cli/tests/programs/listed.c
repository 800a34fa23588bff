/* Prints the open descriptors of a process whose memory is paged, as `fstat` finds them. CPython's test_subprocess does so.
 *
 * usage: listed BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    memset(memory, 1, bytes);
    struct stat about;
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = 0; fd < most; fd++)
        if (!fstat(fd, &about)) printf("%d\n", fd);
    return memory[bytes / 2] != 1;
}
