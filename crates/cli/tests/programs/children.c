/* Creates children in every way, with paged memory. Each child checks the memory; a child with a copy also changes its copy.
 *
 * usage: children BYTES
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define STACK (64 << 10)

extern char **environ;
static uint64_t *words, *apart, *wiped;
static size_t pages;
static pid_t parents_number, childs_number;

static uint64_t *word(size_t page) { return words + page * (PAGE / 8); }

static void fail(const char *what, size_t page)
{
    fprintf(stderr, "%s: page %zu is wrong\n", what, page);
    _exit(1);
}

static void store(uint64_t round)
{
    for (size_t page = 0; page < pages; page++) *word(page) = page * 7 + round;
}

static void check(uint64_t round, const char *what)
{
    for (size_t page = 0; page < pages; page++)
        if (*word(page) != page * 7 + round) fail(what, page);
}

static void end(pid_t child, const char *what)
{
    int status;
    if (child < 0) {
        fprintf(stderr, "%s: error %d\n", what, errno);
        _exit(1);
    }
    if (waitpid(child, &status, __WALL) != child) _exit(3);
    printf("%s: %x\n", what, status);
}

static int copy(void *name)
{
    sigset_t blocked;
    check(1, name);
    store(2);
    check(2, name);
    free(malloc(3 << 20));
    if (sigprocmask(SIG_BLOCK, NULL, &blocked) || sigismember(&blocked, SIGTERM)) return 8;
    return 7;
}

static int numbered(void *name)
{
    if (childs_number != (pid_t)syscall(SYS_gettid)) {
        fprintf(stderr, "the child is %d, not %d\n", (int)syscall(SYS_gettid), childs_number);
        return 1;
    }
    return copy(name);
}

static int grandchild(void *name)
{
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid_t child = clone(copy, stack + STACK, SIGCHLD, name);
    int status;
    if (waitpid(child, &status, 0) != child) return 3;
    check(1, name);
    return WEXITSTATUS(status) + 1;
}

/* The body of a child that shares the parent's memory. */
static int together(void *name)
{
    check(1, name);
    *word(3) = 5;
    _exit(9);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    setbuf(stdout, NULL);
    size_t bytes = strtoull(argv[1], NULL, 10);
    pages = bytes / PAGE;
    words = malloc(bytes);
    store(1);

    pid_t child = fork();
    if (child == 0) _exit(copy("fork"));
    end(child, "fork");
    check(1, "after fork");

    child = _Fork();
    if (child == 0) _exit(copy("_Fork"));
    end(child, "_Fork");
    check(1, "after _Fork");

    child = (pid_t)syscall(SYS_fork);
    if (child == 0) _exit(copy("fork by its number"));
    end(child, "fork by its number");
    check(1, "after fork by its number");

    /* The kernel writes the process numbers to paged memory that is not in DRAM. */
    pid_t *numbers = malloc(3 << 20);
    memset(numbers, 1, 3 << 20);
    store(1);
    pid_t *own = numbers + (1 << 18), *theirs = numbers + (1 << 19);
    int ask = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
    child = (pid_t)syscall(SYS_clone, ask, NULL, own, theirs, 0);
    if (child == 0) _exit(*theirs == (pid_t)syscall(SYS_gettid) ? copy("clone by its number") : 1);
    if (*own != child || *theirs != 0x01010101) fail("the numbers of clone by its number", 0);
    end(child, "clone by its number");
    check(1, "after clone by its number");

    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 5", NULL);
        _exit(1);
    }
    end(child, "vfork");

    char *arguments[] = {"sh", "-c", "exit 6", NULL};
    if (posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ)) return 3;
    end(child, "posix_spawn");

    printf("system: %x\n", system("exit 4"));
    char line[32] = "";
    FILE *from = popen("echo popen", "r");
    if (!from || !fgets(line, sizeof line, from) || pclose(from)) return 3;
    printf("%s", line);

    /* The child's stack is paged memory that is not in DRAM. */
    size_t large = 4 << 20;
    char *stack = mmap(NULL, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(stack, 1, large);
    store(1);
    end(clone(copy, stack + large, SIGCHLD, "clone"), "clone");
    check(1, "after clone");
    end(clone(grandchild, stack + large, SIGCHLD, "grandchild"), "grandchild");
    int flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
    child = clone(numbered, stack + large, flags, "numbered", &parents_number, NULL, &childs_number);
    if (parents_number != child) fail("the child's number in the parent", 0);
    end(child, "numbered");
    end(clone(together, stack + large, CLONE_VM | CLONE_VFORK | SIGCHLD, "together"), "together");
    if (*word(3) != 5) fail("what a child stored into shared memory", 3);
    *word(3) = 3 * 7 + 1;
    printf("clone without a stack: %d", clone(copy, NULL, SIGCHLD, NULL));
    printf(" %d\n", errno);
    check(1, "after clone");

    /* An orphan whose parent has ended. It has closed all of its descriptors. */
    store(1);
    int ends[2];
    if (pipe(ends)) return 3;
    child = fork();
    if (child == 0) {
        if (fork() != 0) _exit(0);
        dup2(ends[1], 0);
        close_range(3, ~0u, 0);
        char news = 1;
        for (int round = 0; round < 20; round++) {
            check(1, "orphan");
            usleep(10000);
        }
        news = write(0, &news, 1) != 1;
        _exit(news);
    }
    end(child, "parent of an orphan");
    close(ends[1]);
    for (uint64_t round = 5; round < 15; round++) store(round);
    char news = 0;
    printf("orphan: %d %d\n", (int)read(ends[0], &news, 1), news);
    close(ends[0]);

    /* A child lacks memory advised MADV_DONTFORK, and gets memory advised MADV_WIPEONFORK filled with zeros. */
    size_t some = 2 << 20;
    apart = mmap(NULL, some, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    wiped = mmap(NULL, some, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(apart, 3, some);
    memset(wiped, 3, some);
    store(1);
    printf("advice: %d %d\n", madvise(apart, some, MADV_DONTFORK), madvise(wiped, some / 2, MADV_WIPEONFORK));
    for (int round = 0; round < 2; round++) {
        child = fork();
        if (child == 0) {
            unsigned char is[1];
            int gone = mincore(apart, PAGE, is) && errno == ENOMEM, zeros = 1;
            for (size_t n = 0; n < some / 16; n++) zeros &= wiped[n] == 0;
            for (size_t n = some / 16; n < some / 8; n++)
                if (wiped[n] != 0x0303030303030303) fail("what is kept", n);
            if (zeros) memset(wiped, 4, some / 2);
            check(1, "beside what is left out");
            /* The grandchild gets the same memory filled with zeros again. */
            pid_t next = fork();
            if (next == 0) _exit(wiped[5] == 0 || !zeros ? 0 : 1);
            int status;
            if (waitpid(next, &status, 0) != next || status) _exit(3);
            _exit(gone * 2 + zeros);
        }
        end(child, "advice");
        for (size_t n = 0; n < some / 8; n++)
            if (apart[n] != 0x0303030303030303 || wiped[n] != 0x0303030303030303) fail("in the parent", n);
        if (madvise(apart, some, MADV_DOFORK) || madvise(wiped, some, MADV_KEEPONFORK)) return 3;
    }
    return 0;
}
