/* Direct reads into paged memory: the device writes to some pages while other pages are evicted.
 *
 * usage: direct BYTES FILE READS THREADS; exits with 77 where the file system has no O_DIRECT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define MOST 64ul /* maximum pages per read */

static char *memory;
static size_t pages;
static int file;
static unsigned long reads;
static unsigned threads;

static uint64_t holds(uint64_t page) { return page * 0x9E3779B97F4A7C15ull + 1; }

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void *work(void *of)
{
    uint64_t random = 88172645463325252ull * ((uintptr_t)of + 1) + (uint64_t)getpid();
    size_t own = pages / threads, first = (uintptr_t)of * own;
    for (unsigned long n = 0; n < reads; n++) {
        size_t count = 1 + next(&random) % MOST, at = first + next(&random) % (own - count);
        size_t from = next(&random) % (pages - count);
        ssize_t got = pread(file, memory + at * PAGE, count * PAGE, (off_t)(from * PAGE));
        if (got != (ssize_t)(count * PAGE)) {
            fprintf(stderr, "read: %zd, error %d\n", got, errno);
            _exit(1);
        }
        for (size_t page = 0; page < count; page++) {
            uint64_t *words = (uint64_t *)(memory + (at + page) * PAGE);
            if (words[0] != holds(from + page) || words[511] != holds(from + page)) {
                fprintf(stderr, "thread %zu, read %lu: page %zu of %zu does not hold the file's data\n", (size_t)(uintptr_t)of, n,
                        page, count);
                _exit(1);
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5) return 2;
    pages = strtoull(argv[1], NULL, 10) / PAGE;
    reads = strtoul(argv[3], NULL, 10);
    threads = (unsigned)atoi(argv[4]);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 3;
    file = open(argv[2], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (file < 0) {
        perror(argv[2]);
        return errno == EINVAL ? 77 : 3;
    }
    unlink(argv[2]);
    for (size_t page = 0; page < pages; page++) {
        uint64_t *words = (uint64_t *)(memory + page * PAGE);
        for (size_t n = 0; n < 512; n++) words[n] = holds(page);
    }
    for (size_t page = 0; page < pages; page += MOST) {
        size_t count = pages - page < MOST ? pages - page : MOST;
        if (pwrite(file, memory + page * PAGE, count * PAGE, (off_t)(page * PAGE)) != (ssize_t)(count * PAGE)) {
            perror("write");
            return 3;
        }
    }
    pthread_t ids[16];
    for (uintptr_t n = 0; n < threads; n++)
        if (pthread_create(&ids[n], NULL, work, (void *)n)) return 3;
    for (unsigned n = 0; n < threads; n++) pthread_join(ids[n], NULL);
    /* After a fork, pages that both processes map must not move during a read either. */
    pid_t child = fork();
    work(0);
    if (child == 0) _exit(0);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "child: status %x\n", status);
        return 1;
    }
    puts("right");
    return 0;
}
