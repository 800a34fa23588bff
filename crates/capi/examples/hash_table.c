/* A persistent hash table that is larger than its DRAM. A rollback undoes a wrong batch of updates at once.
 *
 *     cc -O2 hash_table.c $(pkg-config --cflags --libs deepram) -o hash_table && ./hash_table table.pool
 */

#include <deepram.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
/* Number of slots, a power of two: 32 MiB of slots. */
#define SLOTS ((uint64_t)2 << 20)
#define BYTES (SLOTS * sizeof(struct slot))
/* The largest key; the smallest is 1, and 0 marks a free slot. */
#define KEYS 10000

struct slot {
    uint64_t key, value;
};

/* Ends the program with the message of a failed call. */
static void check(deepram_status status, const char *what)
{
    if (status != DEEPRAM_STATUS_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, deepram_last_error(), deepram_status_name(status));
        exit(1);
    }
}

/* The slot of a key, or the free slot for it. There always is one, because the table never fills. */
static struct slot *find(struct slot *table, uint64_t key)
{
    /* Multiplication by 2^64 divided by the golden ratio spreads neighbouring keys. */
    uint64_t at = (key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SLOTS;
    while (table[at].key != 0 && table[at].key != key)
        at = (at + 1) % SLOTS;
    return &table[at];
}

static void put(struct slot *table, uint64_t key, uint64_t value)
{
    struct slot *slot = find(table, key);
    slot->key = key;
    slot->value = value;
}

static uint64_t sum(const struct slot *table)
{
    uint64_t total = 0;
    for (uint64_t at = 0; at < SLOTS; at++)
        total += table[at].value;
    return total;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "table.pool";
    int is_new = access(path, F_OK) != 0;
    if (is_new) {
        deepram_create_options create;
        check(deepram_create_options_init(&create, BYTES + MIB), "options");
        check(deepram_pool_create(&path, 1, &create), "creating the pool");
    }

    deepram_open_options open;
    check(deepram_open_options_init(&open, 16 * MIB), "options"); /* half of the table */
    open.mapping = DEEPRAM_MAPPING_USER_ONLY;
    deepram_pool *pool;
    check(deepram_pool_open(&path, 1, &open, &pool), "opening the pool");

    deepram_addr addr;
    if (is_new) {
        /* Fresh memory reads as zeros: every slot is free. */
        check(deepram_alloc(pool, BYTES, DEEPRAM_LIFETIME_PERMANENT, &addr), "allocating");
        check(deepram_set_root(pool, "table", addr, BYTES), "naming the table");
    }
    check(deepram_get_root(pool, "table", &addr, NULL), "finding the table");
    void *memory;
    check(deepram_pointer(pool, addr, BYTES, &memory), "mapping the table");
    struct slot *table = memory;
    printf("found: %" PRIu64 "\n", sum(table));

    /* Each run adds one to every value. */
    for (uint64_t key = 1; key <= KEYS; key++)
        put(table, key, find(table, key)->value + 1);
    deepram_token good;
    check(deepram_sync(pool, &good), "syncing");
    printf("updated: %" PRIu64 "\n", sum(table));

    /* A batch turns out to be wrong when half of it is done and a part is already on the device. */
    for (uint64_t key = 1; key <= KEYS / 2; key++)
        put(table, key, 1000000);
    printf("wrong: %" PRIu64 "\n", sum(table));
    check(deepram_rollback(pool, good), "rolling back");
    printf("rolled back: %" PRIu64 "\n", sum(table));

    check(deepram_pool_close(pool), "closing the pool");
    deepram_pool_release(pool);
    return 0;
}
