/* Allocates and fills memory, prints `has 1`, and ends.
 *
 * usage: hog MIB [MILLISECONDS]: MILLISECONDS is the time between the output and the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    size_t bytes = strtoul(argv[1], NULL, 10) << 20;
    char *at = malloc(bytes);
    if (!at) return 3;
    memset(at, 1, bytes);
    printf("has %d\n", at[bytes - 1]);
    fflush(stdout);
    if (argc > 2) usleep(1000 * (useconds_t)strtoul(argv[2], NULL, 10));
    return 0;
}
