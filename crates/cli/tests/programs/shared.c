/* Shared memory larger than the DRAM: a parent and its children store their own words, load their own and each other's, and
 * must all see the same values.
 *
 * usage: shared BYTES CHILDREN [first]
 * "first": the parent unmaps the memory while a child still uses it.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

static _Atomic uint64_t *words;
static size_t pages;

static _Atomic uint64_t *word(size_t page, unsigned who) { return words + page * (PAGE / 8) + who; }

static uint64_t mix(uint64_t n) { return n * 0x9E3779B97F4A7C15ull + 1; }

static void fail(const char *what, size_t page, uint64_t got, uint64_t wanted)
{
    fprintf(stderr, "%s: page %zu holds %llx, should hold %llx\n", what, page, (unsigned long long)got,
            (unsigned long long)wanted);
    _exit(1);
}

static void store(unsigned who, uint64_t round)
{
    for (size_t page = 0; page < pages; page++) *word(page, who) = mix(page * 64 + who + round);
}

static void check(unsigned who, uint64_t round, const char *what)
{
    for (size_t n = 0; n < pages; n++) {
        size_t page = (n * 1000003) % pages;
        uint64_t wanted = mix(page * 64 + who + round);
        if (*word(page, who) != wanted) fail(what, page, *word(page, who), wanted);
    }
}

/* Checks the words of another child, which may be storing its second values already. */
static void check_either(unsigned who)
{
    for (size_t page = 0; page < pages; page++) {
        uint64_t got = *word(page, who);
        if (got != mix(page * 64 + who + 1) && got != mix(page * 64 + who + 2))
            fail("what another child stored", page, got, mix(page * 64 + who + 1));
    }
}

/* Returns the number of pages of the shared memory that are in DRAM. */
static size_t there(void)
{
    unsigned char *is = malloc(pages);
    size_t sum = 0;
    if (mincore((void *)words, pages * PAGE, is)) abort();
    for (size_t n = 0; n < pages; n++) sum += is[n] & 1;
    free(is);
    return sum;
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    size_t bytes = strtoull(argv[1], NULL, 10);
    int children = atoi(argv[2]), first = argc > 3 && !strcmp(argv[3], "first");
    pages = bytes / PAGE;
    words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (words == MAP_FAILED) return 3;
    int gate[2];
    if (pipe(gate)) return 3;
    store(0, 1);
    for (int n = 1; n <= children; n++) {
        pid_t child = fork();
        if (child < 0) return 3;
        if (child == 0) {
            char go;
            close(gate[1]);
            check(0, 1, "what the parent stored, in a child");
            store((unsigned)n, 1);
            check((unsigned)n, 1, "what a child stored, in that child");
            /* Once all children have stored their words, each child checks the others' words too. */
            if (read(gate[0], &go, 1) != 1) _exit(4);
            for (int other = 1; other <= children; other++) check_either((unsigned)other);
            check(0, first ? 1 : 2, "what the parent stored afterwards");
            store((unsigned)n, 2);
            check((unsigned)n, 2, "what a child stored, a second time");
            _exit(0);
        }
    }
    for (int other = 1; other <= children; other++)
        while (*word(pages - 1, (unsigned)other) != mix((pages - 1) * 64 + (uint64_t)other + 1)) usleep(2000);
    if (!first) {
        store(0, 2);
        check(0, 2, "what the parent stored");
    } else if (munmap((void *)words, bytes)) return 3;
    for (int n = 0; n < children; n++)
        if (write(gate[1], "g", 1) != 1) return 3;
    for (int n = 0; n < children; n++) {
        int status;
        if (wait(&status) < 0 || status) {
            fprintf(stderr, "a child ended with %x\n", status);
            return 1;
        }
    }
    if (!first) {
        for (int other = 1; other <= children; other++) check((unsigned)other, 2, "what a child stored, in the parent");
        usleep(500000);
        printf("%zu\n", there());
    } else puts("0");
    return 0;
}
