/* Maps a file, stores to it and syncs it, in parent and child; prints the shortest time of a sync in nanoseconds. With a second
 * argument "threads", also lets threads compute and checks their sums. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 1 << 20, ROUNDS = 20, THREADS = 4, WORDS = 1 << 20, STEPS = 60 };

static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void fail(const char *what) {
    perror(what);
    _exit(1);
}

static long rounds(volatile unsigned char *map, int fd, int part) {
    long least = 1L << 60;
    for (int round = 0; round < ROUNDS; round++) {
        map[(round * 4099 + part) % LEN] = (unsigned char)round;
        long begin = now();
        int failed = round % 2 ? fsync(fd) : msync((void *)map, LEN, MS_SYNC);
        long took = now() - begin;
        if (failed)
            fail("sync");
        if (took < least)
            least = took;
    }
    return least;
}

static unsigned long sum(unsigned long seed) {
    unsigned long *words = malloc(WORDS * sizeof *words), total = 0;
    for (unsigned long step = 0; step < STEPS; step++)
        for (unsigned long n = 0; n < WORDS; n++)
            words[n] = (step ? words[(n * 7919) % WORDS] : seed) * 31 + n;
    double half = 0;
    for (unsigned long n = 0; n < WORDS; n++)
        total ^= words[n] * (n | 1), half += (double)(words[n] & 0xff) / 2;
    free(words);
    return total + (unsigned long)(half * 2);
}

static void *thread(void *seed) { return (void *)sum((unsigned long)seed); }

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, LEN))
        fail(argv[1]);
    unsigned char *map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        fail("mmap");
    long least = rounds(map, fd, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(rounds(map, fd, 64) <= 0);
    int status;
    if (waitpid(child, &status, 0) < 0 || status)
        return 1;
    map = mremap(map, LEN, LEN / 2, MREMAP_MAYMOVE);
    if (map == MAP_FAILED || msync(map, LEN / 2, MS_SYNC) || munmap(map, LEN / 2))
        fail("mremap");
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char stored;
        if (pread(fd, &stored, 1, (round * 4099 + 64) % LEN) != 1 || stored != round)
            return 2;
    }
    if (argc > 2 && !strcmp(argv[2], "threads")) {
        pthread_t all[THREADS];
        for (unsigned long n = 0; n < THREADS; n++)
            pthread_create(&all[n], NULL, thread, (void *)(n % 2));
        void *sums[THREADS];
        for (int n = 0; n < THREADS; n++)
            pthread_join(all[n], &sums[n]);
        if (sums[0] != sums[2] || sums[1] != sums[3] || sums[0] == sums[1])
            return 3;
        printf("%lx\n", (unsigned long)sums[1]);
    }
    printf("%ld\n", least);
    return 0;
}
