/* Threads use descriptors while the memory of the process grows, so that its pager starts meanwhile. Each descriptor must keep
 * referring to its file, and a closed descriptor must stay closed. Each round is a child process.
 *
 * usage: descriptors alone|several BYTES ROUNDS
 * alone: one thread uses descriptors. It also uses the lowest free numbers, which any new descriptor would get, and closes
 * numbers that are not open.
 * several: all threads use descriptors; each thread has its own numbers to duplicate onto.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 512 << 10, USERS = 3, OWN = 16, FIRST = 200, LEAST_HIGH = 100, AFTER = 300 };

static atomic_int grown;
static size_t all;

static void fail(const char *what, int fd, const char *why) {
    fprintf(stderr, "%s: descriptor %d %s (%s)\n", what, fd, why, strerror(errno));
    _exit(1);
}

struct file {
    int fd;
    ino_t number;
};

static struct file make(void) {
    struct stat about;
    int fd = memfd_create("test", MFD_CLOEXEC);
    if (fd < 0 || fd >= LEAST_HIGH) fail("memfd_create", fd, "is no low number");
    if (fstat(fd, &about)) fail("fstat", fd, "is not open");
    return (struct file){fd, about.st_ino};
}

static void is(const char *what, int fd, struct file file) {
    struct stat about;
    if (fstat(fd, &about)) fail(what, fd, "is not open");
    if (about.st_ino != file.number) fail(what, fd, "is another file");
}

static void is_closed(const char *what, int fd) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) fail(what, fd, "is open");
}

static void pass(int fd, const char *what) {
    if (close(fd)) fail(what, fd, "could not be closed");
}

static void onto(int n, int from, int to) {
    int got = n % 2 ? dup2(from, to) : dup3(from, to, O_CLOEXEC);
    if (got != to) fail("dup2", to, "was refused");
}

/* Descriptor calls that are safe while other threads use descriptors too. */
static void use(int n, struct file mine, int own) {
    onto(n, mine.fd, own);
    struct file other = make();
    is("duplicated", own, mine);
    is("made", other.fd, other);
    if (n % 3 == 0) onto(n / 2, other.fd, own), is("duplicated over", own, other);
    pass(own, "duplicated");
    is_closed("duplicated", own);
    int again = dup(other.fd);
    if (again < 0 || again >= LEAST_HIGH) fail("dup", again, "is no low number");
    is("dup", again, other);
    pass(again, "dup");
    is("made", other.fd, other);
    pass(other.fd, "made");
}

static void *uses(void *argument) {
    struct file mine = make();
    int first = *(int *)argument;
    for (int n = 0, left = AFTER; left > 0; n++) {
        left -= grown;
        use(n, mine, first + n % OWN);
    }
    is("kept", mine.fd, mine);
    return argument;
}

/* Descriptor calls that are safe only while no other thread uses descriptors. */
static void *uses_alone(void *argument) {
    struct file mine = make(), other = make();
    /* The pager may have held the lowest free number for a moment while the first file was made. */
    int low = (mine.fd > other.fd ? mine.fd : other.fd) + 1;
    for (int n = 0, left = AFTER; left > 0; n++) {
        left -= grown;
        int to = low + n % 3;
        onto(n, mine.fd, to);
        is("duplicated", to, mine);
        struct file new = make();
        is("duplicated", to, mine);
        pass(to, "duplicated");
        is("made", new.fd, new);
        pass(new.fd, "made");
        for (int fd = low; fd < low + 3; fd++)
            if (close(fd) == 0) fail("close", fd, "was open");
        if (n % 8 == 0) close_range(low, low + 5, 0);
        new = make();
        onto(n, other.fd, new.fd);
        is("duplicated over", new.fd, other);
        pass(new.fd, "made");
        is_closed("made", low + 20);
    }
    is("kept", mine.fd, mine);
    is("kept", other.fd, other);
    return argument;
}

static void grow(void) {
    usleep(rand() % 2000);
    for (size_t at = 0; at < all; at += PIECE) {
        char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED) fail("mmap", -1, "refused");
        memset(piece, 1, PIECE);
    }
    for (int n = 0; n < 3; n++) {
        char *shared = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED) fail("mmap", -1, "refused");
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status) fail("fork", -1, "failed");
        munmap(shared, 2 << 20);
    }
    grown = 1;
}

static void round_of(int users) {
    pthread_t threads[USERS];
    int firsts[USERS];
    for (int n = 0; n < users; n++) {
        firsts[n] = FIRST + n * OWN;
        pthread_create(&threads[n], NULL, users == 1 ? uses_alone : uses, &firsts[n]);
    }
    grow();
    for (int n = 0; n < users; n++) pthread_join(threads[n], NULL);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    all = strtoull(argv[2], NULL, 10);
    for (int n = 0; n < atoi(argv[3]); n++) {
        srand(n);
        pid_t child = fork();
        int status;
        if (child == 0) round_of(strcmp(argv[1], "alone") ? USERS : 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status) {
            fprintf(stderr, "round %d\n", n);
            return 1;
        }
    }
    puts("right");
    return 0;
}
