/* Starts threads without the `pthread_create` that the library interposes, as jemalloc does. The loader keeps the data of such
 * a thread in paged memory. The threads map and unmap memory while pages are evicted all the time.
 *
 * usage: outside THREADS ROUNDS
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MIB (1ul << 20)
#define BYTES (64 * MIB)

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static int rounds;
static int left;

static void *body(void *unused)
{
    for (int n = 0; n < rounds; n++) {
        char *at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) abort();
        at[n % MIB] = 1;
        munmap(at, MIB);
    }
    __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
    return unused;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    int threads = left = atoi(argv[1]);
    rounds = atoi(argv[2]);
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *library = dlopen("libc.so.6", RTLD_NOW);
    create *start = library ? (create *)dlsym(library, "pthread_create") : NULL;
    pthread_t *all = calloc(threads, sizeof *all);
    if (memory == MAP_FAILED || !start || !all) return 3;
    for (size_t at = 0; at < BYTES; at += 4096) memory[at] = 1;
    for (int n = 0; n < threads; n++)
        if (start(&all[n], NULL, body, NULL) != 0) return 3;
    unsigned long sum = 0;
    while (__atomic_load_n(&left, __ATOMIC_SEQ_CST) > 0)
        for (size_t at = 0; at < BYTES; at += 4096) sum += memory[at];
    for (int n = 0; n < threads; n++) pthread_join(all[n], NULL);
    puts(sum % (BYTES / 4096) == 0 ? "done" : "wrong");
    return 0;
}
