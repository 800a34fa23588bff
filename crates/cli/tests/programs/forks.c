/* Forks while the C library, fork handlers and other threads use paged memory. Each child checks the memory and forks again.
 *
 * usage: forks HOW BYTES
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, FILES = 64, THREADS = 4, ROUNDS = 8 };

static char *memory;
static size_t bytes;
static FILE *files[FILES];

/* Goes over all memory twice, so that pages used before are no longer in DRAM. */
static void push_out(void) {
    for (int round = 0; round < 2; round++)
        for (size_t at = 0; at < bytes; at += PAGE) memory[at] = (char)(at / PAGE);
}

static void check(const char *where) {
    for (size_t at = 0; at < bytes; at += PAGE)
        if (memory[at] != (char)(at / PAGE)) {
            fprintf(stderr, "%s: page %zu is wrong\n", where, at / PAGE);
            _exit(1);
        }
}

static void wait_for(pid_t child, const char *where) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "%s: child %d, status %x\n", where, child, child < 0 ? 0 : status);
        _exit(1);
    }
}

/* The body of a child: uses the C library's state, and forks a child of its own. */
static void be_child(int depth) {
    char line[16];
again:;
    struct passwd *user = getpwnam("root");
    if (!user || user->pw_uid) _exit(2);
    for (int n = 0; n < FILES; n++)
        if (files[n] && (fseek(files[n], 0, SEEK_SET) || !fgets(line, sizeof line, files[n]) || atoi(line) != n)) _exit(3);
    check("in the child");
    if (depth) {
        pid_t child = fork();
        if (child == 0) {
            depth--;
            goto again;
        }
        wait_for(child, "in the child");
    }
    _exit(0);
}

static void *fork_often(void *argument) {
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0) be_child(round == 0);
        wait_for(child, "in a thread");
    }
    return argument;
}

static atomic_bool over;

/* Takes the C library's locks repeatedly, and maps and frees memory meanwhile. */
static void *disturb(void *argument) {
    while (!over) {
        FILE *file = fopen("/dev/null", "w");
        fflush(NULL);
        fclose(file);
        free(memset(malloc(2 << 20), 1, 2 << 20));
        for (size_t at = 0; at < bytes; at += 97 * PAGE) memory[at] = (char)(at / PAGE);
    }
    return argument;
}

/* A fork handler that uses all of the memory. */
static void use_all(void) { check("in a handler"); }

int main(int argc, char **argv) {
    pthread_t threads[THREADS], other;
    if (argc != 3) return 2;
    bytes = strtoull(argv[2], NULL, 10);
    memory = malloc(bytes);
    getpwnam("root");
    for (int n = 0; n < FILES; n++) {
        files[n] = fmemopen(NULL, 64, "w+");
        fprintf(files[n], "%d\n", n);
        fflush(files[n]);
    }
    if (!strcmp(argv[1], "handlers")) pthread_atfork(use_all, use_all, use_all);
    if (!strcmp(argv[1], "threads")) {
        push_out();
        pthread_create(&other, NULL, disturb, NULL);
        for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, fork_often, NULL);
        for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
        over = 1;
        pthread_join(other, NULL);
    } else {
        /* The C library takes its locks at a fork only if there is a second thread. */
        pthread_create(&other, NULL, (void *(*)(void *))(void *)pause, NULL);
        for (int round = 0; round < ROUNDS; round++) {
            push_out();
            pid_t child = fork();
            if (child == 0) be_child(2);
            wait_for(child, "in the first thread");
        }
    }
    check("at the end");
    puts("right");
    return 0;
}
