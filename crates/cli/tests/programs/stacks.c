/* Runs functions on stacks that the program has mapped itself and that may be paged: coroutines, and threads created with a
 * given stack. The functions map, move and unmap memory, and fork children.
 *
 * usage: stacks BYTES ROUNDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096ul
#define STACK (512ul << 10)
#define FIBERS 64

static ucontext_t home, fibers[FIBERS];
static char *memory;
static size_t pages;
static unsigned long rounds;
static volatile int stop;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static int deep(int n)
{
    volatile char here[3000];
    memset((char *)here, n, sizeof here);
    return n ? deep(n - 1) + here[7] : here[5];
}

static void one(uint64_t *random)
{
    size_t len = (1 + next(random) % 8) * (512ul << 10);
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) abort();
    memset(at, 7, len);
    char *to = mremap(at, len, len * 2, MREMAP_MAYMOVE);
    if (to == MAP_FAILED) abort();
    if (to[len - 1] != 7 || to[len]) abort();
    if (mprotect(to, PAGE, PROT_READ) || madvise(to + PAGE, len / 2, MADV_DONTNEED)) abort();
    if (munmap(to, len * 2)) abort();
    free(malloc(3 << 20));
    deep(40);
}

static void fiber(int number)
{
    uint64_t random = 88172645463325252ull * (uint64_t)(number + 1);
    char local[20000];
    for (unsigned long n = 0;; n++) {
        memset(local, number, sizeof local);
        one(&random);
        if (n % 32 == 31) {
            pid_t child = fork();
            if (child == 0) _exit(local[next(&random) % sizeof local] == number ? 3 : 4);
            int status;
            if (child < 0 || waitpid(child, &status, 0) != child || status != 0x300) {
                fprintf(stderr, "child: status %x\n", status);
                _exit(1);
            }
        }
        for (size_t k = 0; k < sizeof local; k++)
            if (local[k] != number) {
                fprintf(stderr, "the stack of %d is wrong\n", number);
                _exit(1);
            }
        swapcontext(&fibers[number], &home);
    }
}

static void *touch(void *unused)
{
    uint64_t random = 1234567;
    (void)unused;
    while (!stop) memory[next(&random) % pages * PAGE] += 1;
    return NULL;
}

static void *thread(void *of)
{
    uint64_t random = 4242 + (uintptr_t)of;
    for (unsigned long n = 0; n < rounds * 4; n++) one(&random);
    return of;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    pages = strtoull(argv[1], NULL, 10) / PAGE;
    rounds = strtoul(argv[2], NULL, 10);
    memory = malloc(pages * PAGE);
    memset(memory, 1, pages * PAGE);
    pthread_t other, given[4];
    if (pthread_create(&other, NULL, touch, NULL)) return 3;
    for (uintptr_t n = 0; n < 4; n++) {
        pthread_attr_t attr;
        void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_init(&attr);
        if (pthread_attr_setstack(&attr, stack, STACK)) return 3;
        if (pthread_create(&given[n], &attr, thread, (void *)n)) return 3;
    }
    for (int n = 0; n < FIBERS; n++) {
        getcontext(&fibers[n]);
        fibers[n].uc_stack.ss_sp = malloc(STACK);
        fibers[n].uc_stack.ss_size = STACK;
        makecontext(&fibers[n], (void (*)(void))fiber, 1, n);
    }
    for (unsigned long n = 0; n < rounds; n++)
        for (int k = 0; k < FIBERS; k++) swapcontext(&home, &fibers[k]);
    for (int n = 0; n < 4; n++) pthread_join(given[n], NULL);
    stop = 1;
    pthread_join(other, NULL);
    puts("right");
    return 0;
}
