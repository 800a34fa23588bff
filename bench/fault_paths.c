/* What a page fault without I/O costs, by the way in which it is served.
 *
 *   cc -O2 -pthread -o /tmp/fault_paths bench/fault_paths.c && /tmp/fault_paths [MIB] [PAUSE_US]
 *
 * Each way brings in all pages of MIB (default 256) of missing memory, once with one faulting thread and once with four, which
 * compute for PAUSE_US (default 20) before each fault:
 *
 *   kernel    anonymous memory: the kernel's own fault, which fills a page with zeros
 *   file      a private mapping of a file in the page cache: the kernel maps a page that is there
 *   sigbus    userfaultfd, SIGBUS in the faulting thread, which copies the page by itself
 *   pinned    userfaultfd, one handler thread; it and all faulting threads share one processor
 *   handlers  userfaultfd, one handler thread on each processor; faulting threads run anywhere
 *
 * Prints a row of JSON for each: microseconds a fault, and processor time of all threads a fault, both less the pause.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, MOST_THREADS = 4, MOST_HANDLERS = 64 };
enum way { KERNEL, FILE_PAGES, SIGBUS_COPY, PINNED, HANDLERS, WAYS };
static const char *const NAMES[WAYS] = {"kernel", "file", "sigbus", "pinned", "handlers"};

static int uffd = -1, wake_up[2], threads;
static char *memory, *source;
static size_t pages;
static double pause_us;

static void fail(const char *what) {
    fprintf(stderr, "fault_paths: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void pin(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void copy(uintptr_t address) {
    size_t offset = (address - (uintptr_t)memory) / PAGE * PAGE;
    struct uffdio_copy request = {(uintptr_t)memory + offset, (uintptr_t)source + offset % (1 << 20), PAGE, 0, 0};
    if (ioctl(uffd, UFFDIO_COPY, &request) && errno != EEXIST) fail("UFFDIO_COPY");
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    copy((uintptr_t)info->si_addr);
}

static void *serve(void *processor) {
    pin((int)(intptr_t)processor);
    struct pollfd files[] = {{uffd, POLLIN, 0}, {wake_up[0], POLLIN, 0}};
    for (;;) {
        if (poll(files, 2, -1) < 0) fail("poll");
        if (files[1].revents) return NULL;
        struct uffd_msg message;
        while (read(uffd, &message, sizeof message) == sizeof message) copy(message.arg.pagefault.address);
    }
}

/* Computes, then touches every page of this thread's part, in an order in which no page follows its neighbour. */
static void *touch(void *number) {
    size_t each = pages / threads, first = each * (size_t)(intptr_t)number;
    for (size_t n = 0; n < each; n++) {
        double begin = seconds(CLOCK_MONOTONIC);
        while ((seconds(CLOCK_MONOTONIC) - begin) * 1e6 < pause_us) {}
        ((volatile char *)memory)[(first + n * 2741 % each) * PAGE];
    }
    return NULL;
}

static void measure(enum way way, int count) {
    threads = count;
    int file = -1;
    if (way == FILE_PAGES) {
        file = memfd_create("pages", 0);
        if (file < 0 || ftruncate(file, (off_t)pages * PAGE)) fail("memfd_create");
        for (size_t at = 0; at < pages; at++)
            if (pwrite(file, source, PAGE, (off_t)at * PAGE) != PAGE) fail("pwrite");
    }
    int flags = MAP_PRIVATE | (file < 0 ? MAP_ANONYMOUS : 0);
    memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    madvise(memory, pages * PAGE, MADV_RANDOM);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int handlers = way < PINNED ? 0 : way == PINNED ? 1 : processors < MOST_HANDLERS ? (int)processors : MOST_HANDLERS;
    pthread_t serving[MOST_HANDLERS], touching[MOST_THREADS];
    if (way >= SIGBUS_COPY) {
        uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
        if (uffd < 0) fail("userfaultfd");
        struct uffdio_api api = {UFFD_API, way == SIGBUS_COPY ? UFFD_FEATURE_SIGBUS : 0, 0};
        if (ioctl(uffd, UFFDIO_API, &api)) fail("UFFDIO_API");
        struct uffdio_register range = {{(uintptr_t)memory, pages * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
        if (ioctl(uffd, UFFDIO_REGISTER, &range)) fail("UFFDIO_REGISTER");
    }
    if (pipe2(wake_up, O_CLOEXEC)) fail("pipe2");
    for (int n = 0; n < handlers; n++) pthread_create(&serving[n], NULL, serve, (void *)(intptr_t)n);
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    if (way == PINNED) pin(0);
    double begin = seconds(CLOCK_MONOTONIC), used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int n = 0; n < count; n++) pthread_create(&touching[n], NULL, touch, (void *)(intptr_t)n);
    for (int n = 0; n < count; n++) pthread_join(touching[n], NULL);
    double wall = seconds(CLOCK_MONOTONIC) - begin, cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    sched_setaffinity(0, sizeof all, &all);
    close(wake_up[1]);
    for (int n = 0; n < handlers; n++) pthread_join(serving[n], NULL);
    close(wake_up[0]);
    if (uffd >= 0) close(uffd);
    uffd = -1;
    munmap(memory, pages * PAGE);
    if (file >= 0) close(file);
    double each = (double)(pages / count) * count;
    long busy = way == PINNED ? 1 : count < processors ? count : processors;
    printf("{\"way\": \"%s\", \"threads\": %d, \"pause_us\": %.0f, \"fault_us\": %.2f, \"processor_us\": %.2f}\n", NAMES[way], count,
           pause_us, wall * 1e6 * busy / each - pause_us, cpu * 1e6 / each - pause_us);
}

int main(int count, char **arguments) {
    size_t mib = count > 1 ? strtoul(arguments[1], NULL, 10) : 256;
    pause_us = count > 2 ? strtod(arguments[2], NULL) : 20;
    if (mib < 1 || mib > 1 << 20 || pause_us < 0) {
        fprintf(stderr, "usage: fault_paths [MIB (1 to 1048576)] [PAUSE_US (0 or more)]\n");
        return 2;
    }
    pages = (mib << 20) / PAGE;
    source = malloc(1 << 20);
    memset(source, 7, 1 << 20);
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    for (int way = 0; way < WAYS; way++)
        for (int threads = 1; threads <= MOST_THREADS; threads += MOST_THREADS - 1)
            measure((enum way)way, threads);
    return 0;
}
