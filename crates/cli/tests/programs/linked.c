// A program that is linked with an allocator of its own (linked_allocator.c): each function of malloc's family must be that allocator's,
// and the memory must keep its contents, also in a forked child. Usage: linked BYTES

#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

size_t blocks_given(void);

static void check(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "wrong: %s\n", what);
        _exit(1);
    }
}

static void check_all(uint64_t **blocks, size_t count)
{
    for (size_t n = 0; n < count; n++)
        check(blocks[n][0] == n && blocks[n][127] == ~n, "contents of a block");
}

int main(int argc, char **argv)
{
    check(argc == 2, "arguments");
    size_t count = strtoull(argv[1], NULL, 10) / 1024;
    void *at = NULL;
    size_t before = blocks_given();
    char *text = malloc(10);
    check(blocks_given() == before + 1 && malloc_usable_size(text) == 10, "malloc");
    text = realloc(strcpy(text, "contents"), 5000);
    check(blocks_given() == before + 2 && malloc_usable_size(text) == 5000 && !strcmp(text, "contents"), "realloc");
    check(aligned_alloc(4096, 100) && blocks_given() == before + 3, "aligned_alloc");
    check(!posix_memalign(&at, 64, 100) && (uintptr_t)at % 64 == 0 && blocks_given() == before + 4, "posix_memalign");
    check(strdup("by the C library") && blocks_given() == before + 5, "malloc for the C library");
    uint64_t **blocks = calloc(count, sizeof *blocks);
    check(blocks_given() == before + 6, "calloc");
    for (size_t n = 0; n < count; n++) {
        blocks[n] = malloc(1024);
        blocks[n][0] = n;
        blocks[n][127] = ~n;
    }
    check(blocks_given() == before + 6 + count, "many blocks");
    check_all(blocks, count);
    pid_t child = fork();
    if (!child) {
        check_all(blocks, count);
        check(malloc(100) && blocks_given() == before + 7 + count, "malloc in a child");
        _exit(0);
    }
    int status;
    check(waitpid(child, &status, 0) == child && !status, "the child");
    free(text);
    puts("right");
    return 0;
}
