/* Memory grows from a few pages to more than the DRAM. No thread of deepram runs while the memory is small.
 *
 * usage: late BYTES
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 48 << 10, THREADS = 3, MAPPED = 320 << 10 };

static int threads(void) {
    char line[200];
    int count = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Threads: %d", &count);
    if (file) fclose(file);
    return count;
}

static void check(const char *at, size_t bytes, int value) {
    for (size_t n = 0; n < bytes; n++)
        if (at[n] != (char)value) {
            fprintf(stderr, "byte %zu is %d, not %d\n", n, at[n], value);
            _exit(1);
        }
}

static size_t all;

/* Allocates many blocks, frees some of them, and grows a mapping. */
static void *grow(void *argument) {
    size_t count = all / THREADS / BLOCK, len = PAGE;
    char **blocks = calloc(count, sizeof *blocks);
    char *mapped = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t n = 0; n < count; n++) {
        blocks[n] = malloc(BLOCK);
        memset(blocks[n], (int)n, BLOCK);
        if (n % 5 == 4) {
            check(blocks[n - 3], BLOCK, (int)n - 3);
            free(blocks[n - 3]);
            blocks[n - 3] = NULL;
        }
        char *more = mremap(mapped, len, len + PAGE, MREMAP_MAYMOVE);
        if (more == MAP_FAILED) _exit(2);
        mapped = more;
        mapped[len] = (char)n;
        len += PAGE;
    }
    for (size_t n = 0; n < count; n++) {
        if (blocks[n]) check(blocks[n], BLOCK, (int)n);
        check(mapped + (n + 1) * PAGE, 1, (int)n);
    }
    return argument;
}

static void wait_for(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) _exit(3);
}

int main(int argc, char **argv) {
    pthread_t others[THREADS];
    if (argc != 2) return 2;
    all = strtoull(argv[1], NULL, 10);
    char *mapped = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = malloc(BLOCK);
    memset(mapped, 1, MAPPED);
    memset(block, 2, BLOCK);
    printf("%d threads with little memory\n", threads());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("%d in a child\n", threads());
        check(mapped, MAPPED, 1);
        grow(NULL);
        check(block, BLOCK, 2);
        fflush(stdout);
        _exit(0);
    }
    wait_for(child);
    for (int n = 0; n < THREADS; n++) pthread_create(&others[n], NULL, grow, NULL);
    for (int n = 0; n < 20; n++) {
        child = fork();
        if (child == 0) {
            check(mapped, MAPPED, 1);
            check(block, BLOCK, 2);
            _exit(0);
        }
        wait_for(child);
    }
    for (int n = 0; n < THREADS; n++) pthread_join(others[n], NULL);
    check(mapped, MAPPED, 1);
    check(block, BLOCK, 2);
    munmap(mapped, MAPPED);
    puts("right");
    return 0;
}
