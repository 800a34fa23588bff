/* Ends the last thread of a program with paged memory in the way HOW. The tests check the output and the exit status.
 *
 * usage: ends HOW BYTES
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 64 << 10 };

static char *memory;
static size_t bytes;

static void check(void) {
    for (size_t at = 0; at < bytes; at += PAGE)
        if (memory[at] != (char)(at / PAGE)) _exit(99);
}

static void at_exit(void) {
    check();
    puts("the end");
}

static void *last(void *argument) {
    usleep(200000);
    check();
    return argument;
}

static void *sleep_on(void *argument) {
    for (;;) pause();
    return argument;
}

/* Forks in a second thread: that thread is the only one of the child. */
static void *fork_here(void *argument) {
    pid_t child = fork();
    int status = 0;
    if (child && waitpid(child, &status, 0) == child) printf("the child: %x\n", status);
    return argument;
}

/* A thread that is created by the system call, so that the C library does not know it. */
static int raw(void *argument) {
    (void)argument;
    struct timespec time = {0, 200000000};
    syscall(SYS_nanosleep, &time, NULL);
    syscall(SYS_exit, 5);
    return 0;
}

int main(int argc, char **argv) {
    pthread_t thread;
    if (argc != 3) return 2;
    const char *how = argv[1];
    bytes = strtoull(argv[2], NULL, 10);
    setbuf(stdout, NULL);
    memory = malloc(bytes);
    for (size_t at = 0; at < bytes; at += PAGE) memory[at] = (char)(at / PAGE);
    atexit(at_exit);
    if (!strcmp(how, "main")) {
        pthread_create(&thread, NULL, last, NULL);
        pthread_exit(NULL);
    }
    if (!strcmp(how, "alone")) pthread_exit(NULL);
    if (!strcmp(how, "fork")) {
        pthread_create(&thread, NULL, fork_here, NULL);
        pthread_join(thread, NULL);
        return 4;
    }
    if (!strcmp(how, "call")) syscall(SYS_exit, 6);
    if (!strcmp(how, "raw")) {
        static char stack[STACK] __attribute__((aligned(16)));
        clone(raw, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL);
        syscall(SYS_exit, 7);
    }
    if (!strcmp(how, "signal")) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            pthread_create(&thread, NULL, sleep_on, NULL);
            pthread_exit(NULL);
        }
        usleep(300000);
        kill(child, SIGTERM);
        if (waitpid(child, &status, 0) == child) printf("the child: %x\n", status);
        return 0;
    }
    return 3;
}
