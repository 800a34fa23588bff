/* Uses every function of the interface once at least, with right and wrong arguments.
 *
 * Usage: interface POOL [unmapped]
 * Unmapped, the pool is used by calls alone, as under Valgrind, which knows no userfaultfd. */

#include <deepram.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define PAGE ((uint64_t)1 << 16)
#define THREADS 4

#define EXPECT(condition)                                                                                     \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s; last error: %s\n", __FILE__, __LINE__, #condition,            \
                    deepram_last_error());                                                                    \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)
#define OK(call) EXPECT((call) == DEEPRAM_STATUS_OK)
/* The call fails with this status, and its message contains the text. */
#define FAILS(call, status, text)                                                                             \
    do {                                                                                                      \
        EXPECT((call) == (status));                                                                           \
        EXPECT(strstr(deepram_last_error(), (text)) != NULL);                                                 \
    } while (0)

static deepram_pool *pool;
static int mapped = 1;
static deepram_addr shared;

/* Each thread works in its own part; its failures have messages of its own. */
static void *work(void *argument)
{
    uint64_t number = *(uint64_t *)argument;
    char text[64];
    for (uint64_t round = 0; round < 50; round++) {
        uint64_t value = number * 1000 + round, back = 0;
        OK(deepram_write(pool, shared + number * 4096, &value, sizeof value));
        OK(deepram_read(pool, shared + number * 4096, &back, sizeof back));
        EXPECT(back == value);
        snprintf(text, sizeof text, "no-root-%u", (unsigned)number);
        FAILS(deepram_get_root(pool, text, NULL, NULL), DEEPRAM_STATUS_ROOT, text);
    }
    return NULL;
}

static void *close_pool(void *argument)
{
    (void)argument;
    OK(deepram_pool_close(pool));
    return NULL;
}

static void *use_until_closed(void *argument)
{
    (void)argument;
    deepram_status status;
    do {
        uint64_t value;
        status = deepram_load(pool, shared, &value, sizeof value);
    } while (status == DEEPRAM_STATUS_OK);
    EXPECT(status == DEEPRAM_STATUS_CLOSED);
    return NULL;
}

static void wrong_arguments(const char *path)
{
    deepram_create_options create;
    deepram_open_options open;
    OK(deepram_create_options_init(&create, 2 * MIB));
    OK(deepram_open_options_init(&open, 32 * MIB));
    FAILS(deepram_create_options_init(NULL, 1), DEEPRAM_STATUS_INVALID_ARGUMENT, "null pointer");
    FAILS(deepram_pool_create(NULL, 1, &create), DEEPRAM_STATUS_INVALID_ARGUMENT, "paths is a null pointer");
    FAILS(deepram_pool_create(&path, 1, NULL), DEEPRAM_STATUS_INVALID_ARGUMENT, "options is a null pointer");
    FAILS(deepram_pool_open(&path, 1, &open, NULL), DEEPRAM_STATUS_INVALID_ARGUMENT, "pool is a null pointer");
    create.segment = 5;
    FAILS(deepram_pool_create(&path, 1, &create), DEEPRAM_STATUS_INVALID_ARGUMENT, "4096, 8192 and 16384");
    create.struct_size = 3;
    FAILS(deepram_pool_create(&path, 1, &create), DEEPRAM_STATUS_INVALID_ARGUMENT, "deepram_create_options_init");
    FAILS(deepram_pool_open(&path, 1, &open, &pool), DEEPRAM_STATUS_IO, path);
    EXPECT(pool == NULL);
    FAILS(deepram_sync(NULL, NULL), DEEPRAM_STATUS_INVALID_ARGUMENT, "pool is a null pointer");
    open.mapping = 9;
    FAILS(deepram_pool_open(&path, 1, &open, &pool), DEEPRAM_STATUS_INVALID_ARGUMENT, "9 is no deepram_mapping");
    EXPECT(strcmp(deepram_status_name(DEEPRAM_STATUS_NO_SPACE), "no space") == 0);
    EXPECT(strcmp(deepram_status_name(4711), "unknown status") == 0);
    EXPECT(strlen(deepram_version()) >= 5);
    deepram_pool_release(NULL);
}

static void memory(void)
{
    deepram_addr addr, again;
    char text[32] = "", other[8];
    void *pointer;
    OK(deepram_alloc(pool, 2 * PAGE, DEEPRAM_LIFETIME_PERMANENT, &addr));
    FAILS(deepram_alloc(pool, 0, DEEPRAM_LIFETIME_PERMANENT, &again), DEEPRAM_STATUS_INVALID_ARGUMENT, "0 bytes");
    FAILS(deepram_alloc(pool, PAGE, 7, &again), DEEPRAM_STATUS_INVALID_ARGUMENT, "7 is no deepram_lifetime");
    FAILS(deepram_alloc(pool, 1 << 30, DEEPRAM_LIFETIME_TEMPORARY, &again), DEEPRAM_STATUS_NO_ADDRESS_SPACE, "");
    OK(deepram_store(pool, addr + 5, "hello", 6));
    OK(deepram_load(pool, addr + 5, text, 6));
    EXPECT(strcmp(text, "hello") == 0);
    FAILS(deepram_read(pool, addr, NULL, 6), DEEPRAM_STATUS_INVALID_ARGUMENT, "to is a null pointer");
    OK(deepram_read(pool, addr, NULL, 0));
    deepram_addr places[3] = {addr + PAGE, addr + 100, addr + PAGE + 4096};
    OK(deepram_scatter(pool, places, 3, 2, "abcdef"));
    OK(deepram_gather(pool, places, 3, 2, text));
    EXPECT(memcmp(text, "abcdef", 6) == 0);
    FAILS(deepram_gather(pool, places, 3, SIZE_MAX, text), DEEPRAM_STATUS_INVALID_ARGUMENT, "exceed");
    OK(deepram_prefetch(pool, addr, 2 * PAGE));
    OK(deepram_pin(pool, addr, 4096, 1));
    OK(deepram_pin(pool, addr, 4096, 0));
    OK(deepram_evict(pool, addr, 2 * PAGE));
    if (mapped) {
        OK(deepram_pointer(pool, addr, 2 * PAGE, &pointer));
        EXPECT(strcmp((char *)pointer + 5, "hello") == 0);
        OK(deepram_address_of(pool, (char *)pointer + 77, &again));
        EXPECT(again == addr + 77);
        FAILS(deepram_address_of(pool, text, &again), DEEPRAM_STATUS_NOT_ALLOCATED, "does not point into");
    } else {
        FAILS(deepram_pointer(pool, addr, 2 * PAGE, &pointer), DEEPRAM_STATUS_NOT_MAPPED, "");
    }
    OK(deepram_setperms(pool, addr, PAGE, 1, 0, DEEPRAM_LIFETIME_PERMANENT));
    FAILS(deepram_write(pool, addr, "x", 1), DEEPRAM_STATUS_PERMISSION, "cannot be written");
    OK(deepram_free(pool, addr, 2 * PAGE));
    FAILS(deepram_read(pool, addr, other, 1), DEEPRAM_STATUS_NOT_ALLOCATED, "not in allocated memory");
}

static void durability(void)
{
    deepram_addr addr;
    deepram_token first, second;
    deepram_history_entry history[16];
    size_t count;
    char text[8];
    OK(deepram_alloc(pool, PAGE, DEEPRAM_LIFETIME_PERMANENT, &addr));
    OK(deepram_write(pool, addr, "one", 4));
    OK(deepram_sync(pool, &first));
    OK(deepram_write(pool, addr, "two", 4));
    OK(deepram_sync(pool, &second));
    OK(deepram_sync(pool, NULL));
    OK(deepram_read_at(pool, first, addr, text, 4));
    EXPECT(strcmp(text, "one") == 0);
    OK(deepram_history(pool, history, 16, &count));
    EXPECT(count >= 2 && history[count - 1].token >= second);
    FAILS(deepram_history(pool, history, 1, &count), DEEPRAM_STATUS_BUFFER_TOO_SMALL, "do not fit");
    EXPECT(count >= 2);
    OK(deepram_rollback(pool, first));
    OK(deepram_read(pool, addr, text, 4));
    EXPECT(strcmp(text, "one") == 0);
    FAILS(deepram_rollback(pool, 4711), DEEPRAM_STATUS_TOKEN, "4711");
    FAILS(deepram_persist(pool, addr, 4), DEEPRAM_STATUS_PERSIST_REGION, "");
    OK(deepram_create_pmem_region(pool, addr, PAGE));
    OK(deepram_write(pool, addr, "six", 4));
    OK(deepram_persist(pool, addr, 4));
    OK(deepram_remove_pmem_region(pool, addr, PAGE));
}

static void roots(void)
{
    deepram_addr addr, found;
    deepram_root all[4];
    uint64_t len;
    size_t count;
    OK(deepram_alloc(pool, PAGE, DEEPRAM_LIFETIME_PERMANENT, &addr));
    OK(deepram_set_root(pool, "numbers", addr, 100));
    OK(deepram_set_root(pool, "text", addr + 100, 200));
    OK(deepram_get_root(pool, "text", &found, &len));
    EXPECT(found == addr + 100 && len == 200);
    OK(deepram_roots(pool, all, 4, &count));
    EXPECT(count == 2 && strcmp(all[0].name, "numbers") == 0 && all[1].len == 200);
    OK(deepram_remove_root(pool, "numbers"));
    FAILS(deepram_get_root(pool, "numbers", &found, &len), DEEPRAM_STATUS_ROOT, "numbers");
    FAILS(deepram_set_root(pool, "\xff", addr, 1), DEEPRAM_STATUS_INVALID_ARGUMENT, "not UTF-8");
    FAILS(deepram_set_root(pool, NULL, addr, 1), DEEPRAM_STATUS_INVALID_ARGUMENT, "name is a null pointer");
}

int main(int argc, char **argv)
{
    EXPECT(argc == 2 || (argc == 3 && strcmp(argv[2], "unmapped") == 0));
    mapped = argc == 2;
    const char *path = argv[1];
    wrong_arguments(path);
    deepram_create_options create;
    OK(deepram_create_options_init(&create, 2 * MIB));
    create.flash = 64 * MIB;
    OK(deepram_pool_create(&path, 1, &create));
    FAILS(deepram_pool_create(&path, 1, &create), DEEPRAM_STATUS_EXISTS, "exists already");
    deepram_open_options open;
    OK(deepram_open_options_init(&open, 32 * MIB));
    open.mapping = mapped ? DEEPRAM_MAPPING_USER_ONLY : DEEPRAM_MAPPING_OFF;
    OK(deepram_pool_open(&path, 1, &open, &pool));
    memory();
    durability();
    roots();

    deepram_info info;
    OK(deepram_pool_info(pool, &info));
    EXPECT(info.segment == 4096 && info.size >= 2 * MIB && info.allocated > 0);
    OK(deepram_pool_set_dram(pool, 24 * MIB));
    FAILS(deepram_pool_set_dram(pool, 1), DEEPRAM_STATUS_BUDGET, "too small");
    char reasons[100] = "?";
    size_t count = 9;
    OK(deepram_pool_take_errors(pool, reasons, sizeof reasons, &count));
    EXPECT(count == 0 && reasons[0] == '\0');
    deepram_counter counters[64];
    OK(deepram_pool_stats(pool, counters, 64, &count));
    EXPECT(count > 20 && strcmp(counters[0].name, "faults_missing") == 0);

    OK(deepram_alloc(pool, PAGE, DEEPRAM_LIFETIME_PERMANENT, &shared));
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    for (int n = 0; n < THREADS; n++) {
        numbers[n] = (uint64_t)n;
        EXPECT(pthread_create(&threads[n], NULL, work, &numbers[n]) == 0);
    }
    for (int n = 0; n < THREADS; n++)
        EXPECT(pthread_join(threads[n], NULL) == 0);
    for (int n = 0; n < THREADS; n++)
        EXPECT(pthread_create(&threads[n], NULL, n ? use_until_closed : close_pool, NULL) == 0);
    for (int n = 0; n < THREADS; n++)
        EXPECT(pthread_join(threads[n], NULL) == 0);
    FAILS(deepram_sync(pool, NULL), DEEPRAM_STATUS_CLOSED, "closed");
    deepram_pool_release(pool);
    puts("all as expected");
    return 0;
}
