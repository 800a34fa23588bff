/* The error of a failed dlopen is still there after the first calls of many functions of the C library, and after memory
 * has grown from a few pages to more than the DRAM.
 *
 * usage: dlerror BYTES
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect_error(const char *after) {
    char *told = dlerror();
    if (!told || !strstr(told, "no-such-library")) {
        fprintf(stderr, "after %s the error is %s\n", after, told ? told : "gone");
        exit(1);
    }
    if (dlopen("no-such-library.so", RTLD_NOW)) exit(2);
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoull(argv[1], 0, 10) : 0;
    cpu_set_t cpus;
    if (dlopen("no-such-library.so", RTLD_NOW)) return 2;
    expect_error("dlopen");
    sched_getaffinity(0, sizeof cpus, &cpus);
    expect_error("sched_getaffinity");
    close(open("/dev/null", O_RDONLY));
    expect_error("open");
    fsync(1);
    expect_error("fsync");
    /* The pager starts within one of these calls. */
    for (size_t all = 0; all < bytes; all += 64 << 10) {
        char *part = malloc(64 << 10);
        if (!part) return 3;
        memset(part, 1, 64 << 10);
        expect_error("malloc");
    }
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, 0, 0);
    expect_error("fork");
    puts("right");
    return 0;
}
