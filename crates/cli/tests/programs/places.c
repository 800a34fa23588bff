/* The pager keeps a thread that faults alone on one processor. Neither calls that ask for the thread's affinity nor the
 * threads and processes that it starts may see that.
 *
 * places BYTES: prints the number of wrong answers; on the standard error, the number of times that the thread was kept.
 * places count: exits with the number of processors that the process may run on.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAULTS = 400, ROUNDS = 12 };

extern char **environ;

/* Returns the number of processors in the kernel's affinity mask, past any library that interposes the C library. */
static int kernels(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    /* The library also interposes `syscall`, and answers with the affinity that the program has set. */
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_sched_getaffinity), "D"(0), "S"(sizeof set), "d"(&set) : "rcx", "r11", "memory");
    return CPU_COUNT(&set);
}

static void *in_thread(void *unused) {
    (void)unused;
    return (void *)(intptr_t)kernels();
}

static int status_of(pid_t pid) {
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static int ask(int way, char *self) {
    char *arguments[] = {self, "count", NULL};
    char command[4096];
    snprintf(command, sizeof command, "exec '%s' count", self);
    cpu_set_t set;
    pthread_t thread;
    void *answer = NULL;
    pid_t pid;
    switch (way) {
    case 0:
        return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
    case 1:
        return pthread_getaffinity_np(pthread_self(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
    case 2:
        if (pthread_create(&thread, NULL, in_thread, NULL) != 0) return -1;
        pthread_join(thread, &answer);
        return (int)(intptr_t)answer;
    case 3:
        pid = fork();
        if (pid == 0) _exit(kernels());
        return status_of(pid);
    case 4:
        pid = vfork();
        if (pid == 0) {
            execve(self, arguments, environ);
            _exit(99);
        }
        return status_of(pid);
    case 5:
        pid = vfork();
        if (pid == 0) {
            execvp(self, arguments);
            _exit(99);
        }
        return status_of(pid);
    case 6:
        return posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0 ? status_of(pid) : -1;
    case 7:
        return posix_spawnp(&pid, self, NULL, NULL, arguments, environ) == 0 ? status_of(pid) : -1;
    case 8:
        return WEXITSTATUS(system(command));
    default: {
        FILE *pipe = popen(command, "r");
        return pipe == NULL ? -1 : WEXITSTATUS(pclose(pipe));
    }
    }
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    if (strcmp(arguments[1], "count") == 0) return kernels();
    int all = kernels(), wrong = 0, kept = 0;
    size_t pages = strtoull(arguments[1], NULL, 10) / 4096;
    volatile uint64_t *memory =
        mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return 3;
    for (size_t n = 0; n < pages; n++) memory[n * 512] = n;
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < ROUNDS; round++) {
        for (int way = 0; way < 10; way++) {
            for (int fault = 0; fault < FAULTS; fault++) {
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                size_t page = random % pages;
                if (memory[page * 512] != page) return 4;
                kept += kernels() < all;
            }
            int found = ask(way, arguments[0]);
            if (found != all) {
                fprintf(stderr, "way %d: %d of %d\n", way, found, all);
                wrong++;
            }
        }
    }
    /* An affinity that the program sets itself takes effect. */
    cpu_set_t before, one, found;
    sched_getaffinity(0, sizeof before, &before);
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (!CPU_ISSET(processor, &before)) continue;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        wrong += sched_setaffinity(0, sizeof one, &one) != 0;
        for (int fault = 0; fault < FAULTS; fault++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t page = random % pages;
            if (memory[page * 512] != page) return 4;
            wrong += sched_getcpu() != processor;
        }
        sched_getaffinity(0, sizeof found, &found);
        wrong += !CPU_EQUAL(&one, &found);
    }
    wrong += sched_setaffinity(0, sizeof before, &before) != 0;
    sched_getaffinity(0, sizeof found, &found);
    wrong += !CPU_EQUAL(&before, &found);
    fprintf(stderr, "kept %d\n", kept);
    printf("%d wrong\n", wrong);
    return 0;
}
