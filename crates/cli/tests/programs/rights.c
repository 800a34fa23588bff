/* Drops its privileges or changes its root folder once its memory is paged, and goes on: it makes memory unreadable for a
 * while, and forks.
 *
 * usage: rights user|root BYTES FOLDER
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

static uint64_t *words;
static size_t pages;

static uint64_t *word(size_t page) { return words + page * (PAGE / 8); }

static void store(size_t first, uint64_t round)
{
    for (size_t page = first; page < pages; page++) *word(page) = page * 7 + round;
}

static void check(size_t first, size_t end, uint64_t round, const char *what)
{
    for (size_t page = first; page < end; page++)
        if (*word(page) != page * 7 + round) {
            fprintf(stderr, "%s: page %zu is wrong\n", what, page);
            _exit(1);
        }
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    pages = strtoull(argv[2], NULL, 10) / PAGE;
    words = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) return 3;
    store(0, 1);
    if (strcmp(argv[1], "root") == 0) {
        if (chroot(argv[3]) || chdir("/")) return 77;
    } else if (setgid(65534) || setuid(65534)) {
        return 77;
    }
    size_t hidden = pages / 16;
    check(0, hidden, 1, "before");
    if (mprotect(words, hidden * PAGE, PROT_NONE)) return 3;
    store(hidden, 2);
    if (mprotect(words, hidden * PAGE, PROT_READ | PROT_WRITE)) return 3;
    check(0, hidden, 1, "after it was unreadable");
    pid_t child = fork();
    if (child == 0) {
        check(0, hidden, 1, "in a child");
        check(hidden, pages, 2, "in a child");
        for (size_t page = 0; page < pages; page += 4) *word(page) = page * 7 + 3;
        for (size_t page = 0; page < pages; page += 4) check(page, page + 1, 3, "in a child, stored to");
        _exit(5);
    }
    store(0, 4);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return 3;
    check(0, pages, 4, "after the fork");
    printf("the child: %x\n", status);
    return 0;
}
