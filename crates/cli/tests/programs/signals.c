/* Signals to a program with paged memory: they reach the program's own threads, as its signal masks say, and signal handlers
 * may use all memory at any time.
 *
 * usage: signals BYTES ROUNDS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

extern char **environ;
static char *memory;
static size_t pages;
static volatile sig_atomic_t came, strangers;
static pid_t first;
static uint64_t random_state = 88172645463325252ull;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void tick(int signal)
{
    (void)signal;
    int error = errno;
    came++;
    strangers += (pid_t)syscall(SYS_gettid) != first;
    /* Stores to pages that are probably not in DRAM. */
    for (int n = 0; n < 2; n++) memory[next(&random_state) % pages * PAGE] += 1;
    errno = error;
}

static void wait_for(const char *what, int want, int got)
{
    if (want == got) return;
    fprintf(stderr, "%s: %d, should be %d (error %d)\n", what, got, want, errno);
    _exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    first = (pid_t)syscall(SYS_gettid);
    pages = strtoull(argv[1], NULL, 10) / PAGE;
    unsigned long rounds = strtoul(argv[2], NULL, 10);
    memory = malloc(pages * PAGE);
    memset(memory, 1, pages * PAGE);

    /* The signals are blocked in every thread of the program, and waited for. If a thread of the pager took one, the program
     * would end. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int got = 0;
    kill(getpid(), SIGTERM);
    usleep(10000);
    sigwait(&set, &got);
    wait_for("sigwait", SIGTERM, got);
    int fd = signalfd(-1, &set, SFD_CLOEXEC);
    struct signalfd_siginfo info;
    kill(getpid(), SIGUSR1);
    usleep(10000);
    if (read(fd, &info, sizeof info) != sizeof info) return 3;
    wait_for("signalfd", SIGUSR1, (int)info.ssi_signo);
    close(fd);
    /* A program started with posix_spawn inherits the blocked signals. */
    char *arguments[] = {"grep", "SigBlk", "/proc/self/status", NULL};
    pid_t other;
    if (posix_spawnp(&other, "grep", NULL, NULL, arguments, environ) || waitpid(other, &got, 0) != other) return 3;

    /* A timer's handler runs on a paged stack, while memory is mapped, moved, unmapped and forked. */
    stack_t stack = {.ss_sp = malloc(1 << 20), .ss_size = 1 << 20};
    if (sigaltstack(&stack, NULL)) return 3;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    /* Each round starts the timer anew for one signal. With a periodic timer the loop would not advance on a slow machine. */
    struct itimerval once = {{0, 0}, {0, 700}};
    uint64_t random = 4242;
    for (unsigned long n = 0; n < rounds; n++) {
        once.it_value.tv_usec = 1 + (suseconds_t)(next(&random) % 1500);
        setitimer(ITIMER_REAL, &once, NULL);
        size_t len = (1 + next(&random) % 8) * (512ul << 10);
        char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) abort();
        memset(at, 7, len);
        at = mremap(at, len, len * 2, MREMAP_MAYMOVE);
        if (at == MAP_FAILED || at[len - 1] != 7 || at[len]) abort();
        if (mprotect(at, PAGE, PROT_READ) || madvise(at + PAGE, len / 2, MADV_DONTNEED)) abort();
        if (mlock(at + PAGE, 4 * PAGE) || munlock(at + PAGE, 4 * PAGE)) abort();
        if (munmap(at, len * 2)) abort();
        if (n % 16 == 15) {
            pid_t child = fork();
            if (child == 0) {
                sigset_t now;
                sigprocmask(SIG_BLOCK, NULL, &now);
                memory[next(&random) % pages * PAGE] += 1;
                _exit(sigismember(&now, SIGALRM) * 2 + sigismember(&now, SIGTERM));
            }
            int ended;
            while (waitpid(child, &ended, 0) < 0) if (errno != EINTR) return 3;
            wait_for("what a child blocks", 0x100, ended);
        }
    }
    usleep(10000);
    if (came < 10) {
        fprintf(stderr, "only %d signals came\n", (int)came);
        return 1;
    }
    wait_for("signals taken by other threads", 0, strangers);
    puts("right");
    return 0;
}
