/* deepram: memory larger than DRAM in a file or on a block device, which survives crashes and can be rolled back.
 *
 * - Every function that can fail returns a deepram_status. After a failure, deepram_last_error() has the message of
 *   the calling thread's last failed call: what was wrong, where, and what would be right.
 * - A handle may be used by any number of threads at once, also while one of them closes the pool: the other calls then
 *   return DEEPRAM_STATUS_CLOSED. Only deepram_pool_release() must be the last call on a handle.
 * - Memory that a call reads or writes (buffers, out-parameters) must not be memory of a pool.
 * - A load or store through a pointer that cannot be served raises SIGBUS (damaged data) or SIGSEGV (freed, closed,
 *   full); deepram_pool_take_errors() tells the reason.
 * - Values of enumerations never change; later versions may add some.
 */

#ifndef DEEPRAM_H
#define DEEPRAM_H

/* Generated from crates/capi by cbindgen. Do not edit: UPDATE_HEADER=1 cargo test -p deepram-capi header */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of a root's name with the zero at its end.
#define DEEPRAM_NAME_BYTES 112

// The outcome of a call. The numbers are stable.
typedef enum deepram_status {
    // The call has done its work.
    DEEPRAM_STATUS_OK = 0,
    // An argument is invalid: a null pointer, a text that is not UTF-8, an option out of range.
    DEEPRAM_STATUS_INVALID_ARGUMENT = 1,
    // A device or file operation failed.
    DEEPRAM_STATUS_IO = 2,
    // The file is no pool.
    DEEPRAM_STATUS_NOT_A_POOL = 3,
    // The pool has the format of another version of deepram.
    DEEPRAM_STATUS_VERSION = 4,
    // The device is shorter than the pool.
    DEEPRAM_STATUS_TRUNCATED = 5,
    // The pool, or the data that were asked for, are damaged.
    DEEPRAM_STATUS_DAMAGED = 6,
    // The devices are not all devices of one pool.
    DEEPRAM_STATUS_MISMATCH = 7,
    // The device is full.
    DEEPRAM_STATUS_NO_SPACE = 8,
    // The line log or a transaction log is full: sync, or truncate the log.
    DEEPRAM_STATUS_LOG_FULL = 9,
    // No range of free addresses is long enough.
    DEEPRAM_STATUS_NO_ADDRESS_SPACE = 10,
    // The memory is not part of a persist region, or cannot become one.
    DEEPRAM_STATUS_PERSIST_REGION = 11,
    // The address is not in allocated memory.
    DEEPRAM_STATUS_NOT_ALLOCATED = 12,
    // The permissions of the memory forbid the access.
    DEEPRAM_STATUS_PERMISSION = 13,
    // The address range leaves the pool.
    DEEPRAM_STATUS_ADDRESS = 14,
    // The pool has no state for this token.
    DEEPRAM_STATUS_TOKEN = 15,
    // The pool cannot be mapped, or was opened without mapping.
    DEEPRAM_STATUS_NOT_MAPPED = 16,
    // The DRAM budget is too small.
    DEEPRAM_STATUS_BUDGET = 17,
    // The name of a root is unknown or invalid.
    DEEPRAM_STATUS_ROOT = 18,
    // The file exists already.
    DEEPRAM_STATUS_EXISTS = 19,
    // A new pool would destroy what the device holds.
    DEEPRAM_STATUS_HOLDS = 20,
    // The pool is open in another process, or the device is in use.
    DEEPRAM_STATUS_BUSY = 21,
    // A memory controller cannot do this.
    DEEPRAM_STATUS_IN_PLACE = 22,
    // The pool is closed.
    DEEPRAM_STATUS_CLOSED = 23,
    // The pool was opened by the process from which this one was forked.
    DEEPRAM_STATUS_FORKED_CHILD = 24,
    // The pool has stopped; open it again.
    DEEPRAM_STATUS_STOPPED = 25,
    // The pool is open for reading only.
    DEEPRAM_STATUS_READ_ONLY = 26,
    // The buffer is too small for all results; the number of results is returned.
    DEEPRAM_STATUS_BUFFER_TOO_SMALL = 27,
    // deepram has a defect: a panic was stopped. Close the pool, and report the message.
    DEEPRAM_STATUS_PANIC = 28,
    // An error without a code of its own; its message explains it.
    DEEPRAM_STATUS_OTHER = 29,
} deepram_status;

// Whether memory outlives the process that allocated it.
typedef enum deepram_lifetime {
    // Freed when the pool is closed, or at the next opening after a crash.
    DEEPRAM_LIFETIME_TEMPORARY = 0,
    // Kept until a program frees it.
    DEEPRAM_LIFETIME_PERMANENT = 1,
} deepram_lifetime;

// Whether and how a pool is mapped.
typedef enum deepram_mapping {
    // Mapped, and system calls may access its memory. Needs the right to use userfaultfd.
    DEEPRAM_MAPPING_FULL = 0,
    // Mapped for user code only, which needs no privilege. System calls on memory that is not resident fail with EFAULT.
    DEEPRAM_MAPPING_USER_ONLY = 1,
    // Not mapped: calls such as deepram_load() are the only access.
    DEEPRAM_MAPPING_OFF = 2,
} deepram_mapping;

// A handle of an open pool.
typedef struct deepram_pool deepram_pool;

// A token of a sync, to which a pool can be rolled back.
typedef uint64_t deepram_token;

// A token and the statistics of its state.
typedef struct deepram_history_entry {
    // The token.
    deepram_token token;
    // Time of the sync, nanoseconds since 1970; 0 for the token of the empty pool.
    uint64_t wall_ns;
    // Pages changed between the previous token and this one.
    uint64_t pages_changed;
    // Segments written between the previous token and this one.
    uint64_t segments_written;
} deepram_history_entry;

// An address in a pool: it stays the same at every opening, unlike a pointer into a pool that is mapped elsewhere.
typedef uint64_t deepram_addr;

// Options of a new pool. Fill it with deepram_create_options_init(), then change what should differ.
typedef struct deepram_create_options {
    // Size of this structure, bytes; set by deepram_create_options_init().
    size_t struct_size;
    // Virtual memory of each device, bytes.
    uint64_t size;
    // Flash that each device provides, bytes; 0: 2.4 times the memory, and more for small pools.
    uint64_t flash;
    // Memory of each device that will become persist regions, bytes.
    uint64_t pmem;
    // Size of a segment, bytes: 4096, 8192 or 16384.
    uint32_t segment;
    // Number of tokens that the pool keeps.
    uint32_t keep;
    // Address at which the pool is mapped; 0: the pool chooses one, which stays the same.
    uint64_t base;
    // Whether a block device that holds something may be overwritten: 0 or 1.
    int32_t overwrite;
} deepram_create_options;

// Options of opening a pool. Fill it with deepram_open_options_init(), then change what should differ.
typedef struct deepram_open_options {
    // Size of this structure, bytes; set by deepram_open_options_init().
    size_t struct_size;
    // DRAM budget, bytes: frames, tables and buffers together.
    uint64_t dram;
    // Whether and how the pool is mapped: a deepram_mapping.
    int32_t mapping;
    // Address at which the pool is mapped instead of its own; 0: its own.
    uint64_t base;
    // Token at which the pool opens, discarding what the log holds after it; 0: the last one.
    uint64_t at_token;
    // Address at which the pool serves its statistics over HTTP while it is open, "unix:PATH" or "HOST:PORT" with a
    // loopback address; null: it does not.
    const char *listen;
} deepram_open_options;

// Properties and usage of a pool.
typedef struct deepram_info {
    // Virtual memory of all devices together, bytes.
    uint64_t size;
    // Allocated memory, bytes.
    uint64_t allocated;
    // Flash of the pool, bytes.
    uint64_t flash;
    // Flash that current data and kept versions take, bytes.
    uint64_t flash_used;
    // New data that fits before older tokens must be given up, bytes.
    uint64_t flash_room;
    // Size of a segment, bytes.
    uint64_t segment;
    // Address at which the pool is mapped.
    uint64_t base;
    // Number of the open epoch: the token that the next sync returns.
    uint64_t open_epoch;
} deepram_info;

// A counter of a pool.
typedef struct deepram_counter {
    // The name, such as "bytes_written"; static.
    const char *name;
    // The value since the pool was opened; of "resident_segments", "dirty_segments", "buffered_segments",
    // "promotion_threshold", "frames", "dram_bytes" and "budget_bytes" the value now.
    uint64_t value;
} deepram_counter;

// A name for a range of memory.
typedef struct deepram_root {
    // The name, with a zero at its end.
    char name[DEEPRAM_NAME_BYTES];
    // The first address of the range.
    deepram_addr addr;
    // Length of the range, bytes.
    uint64_t len;
} deepram_root;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the message of the calling thread's last failed call; an empty text before the first failure. The text is valid
// until the thread's next failed call, or its end.
const char *deepram_last_error(void);

// Returns the version of deepram. The text is static.
const char *deepram_version(void);

// Makes all memory durable, and stores the token of this state in `token`, which may be null.
//
// # Safety
// `pool` is a handle; `token` is null or valid for a write.
enum deepram_status deepram_sync(const struct deepram_pool *pool, deepram_token *token);

// Returns all memory to its state at a token.
//
// # Safety
// `pool` is a handle. No other thread uses the memory meanwhile.
enum deepram_status deepram_rollback(const struct deepram_pool *pool, deepram_token token);

// Stores the tokens to which the pool can be rolled back in `entries`, and their number in `count`.
//
// # Safety
// `pool` is a handle; `entries` is valid for writes of `capacity` entries; `count` is valid for a write.
enum deepram_status deepram_history(const struct deepram_pool *pool,
                                    struct deepram_history_entry *entries,
                                    size_t capacity,
                                    size_t *count);

// Copies `len` bytes at `addr` as they were at a token into `to`, without a rollback.
//
// # Safety
// `pool` is a handle; `to` is valid for writes of `len` bytes.
enum deepram_status deepram_read_at(const struct deepram_pool *pool,
                                    deepram_token token,
                                    deepram_addr addr,
                                    void *to,
                                    size_t len);

// Makes the pages of `len` bytes at `addr` part of a persist region, in which deepram_persist() works. Syncs.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_create_pmem_region(const struct deepram_pool *pool,
                                               deepram_addr addr,
                                               uint64_t len);

// Makes the pages of `len` bytes at `addr` ordinary memory, from the next token on.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_remove_pmem_region(const struct deepram_pool *pool,
                                               deepram_addr addr,
                                               uint64_t len);

// Makes `len` bytes at `addr`, inside a persist region, durable without a sync: lines of 64 bytes, each completely or not
// at all.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_persist(const struct deepram_pool *pool,
                                    deepram_addr addr,
                                    uint64_t len);

// Allocates `len` bytes, in whole pages of 64 KiB, and stores their address in `addr`. `lifetime` is a deepram_lifetime.
//
// # Safety
// `pool` is a handle; `addr` is valid for a write.
enum deepram_status deepram_alloc(const struct deepram_pool *pool,
                                  uint64_t len,
                                  int32_t lifetime,
                                  deepram_addr *addr);

// Frees the pages of `len` bytes at `addr`. Tokens keep their versions of these pages.
//
// # Safety
// `pool` is a handle. No thread uses pointers into the pages any more.
enum deepram_status deepram_free(const struct deepram_pool *pool, deepram_addr addr, uint64_t len);

// Sets the permissions and the lifetime of the pages of `len` bytes at `addr`. `read` and `write` are 0 or 1; `lifetime` is
// a deepram_lifetime.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_setperms(const struct deepram_pool *pool,
                                     deepram_addr addr,
                                     uint64_t len,
                                     int32_t read,
                                     int32_t write,
                                     int32_t lifetime);

// Stores the pointer to `len` allocated bytes at `addr` in `pointer`. The pointer is the same at every opening, so that
// memory of the pool may hold pointers into the pool. It is valid until the memory is freed or the pool is closed.
//
// # Safety
// `pool` is a handle; `pointer` is valid for a write.
enum deepram_status deepram_pointer(const struct deepram_pool *pool,
                                    deepram_addr addr,
                                    uint64_t len,
                                    void **pointer);

// Stores the address of a pointer into the pool in `addr`.
//
// # Safety
// `pool` is a handle; `addr` is valid for a write.
enum deepram_status deepram_address_of(const struct deepram_pool *pool,
                                       const void *pointer,
                                       deepram_addr *addr);

// Copies `len` bytes at `addr` into `to`, and brings them into the DRAM cache.
//
// # Safety
// `pool` is a handle; `to` is valid for writes of `len` bytes.
enum deepram_status deepram_read(const struct deepram_pool *pool, deepram_addr addr, void *to, size_t len);

// Copies `len` bytes of `from` to `addr`. They are durable after the next sync.
//
// # Safety
// `pool` is a handle; `from` is valid for reads of `len` bytes.
enum deepram_status deepram_write(const struct deepram_pool *pool,
                                  deepram_addr addr,
                                  const void *from,
                                  size_t len);

// Copies `len` bytes at `addr` into `to`, without bringing them into the DRAM cache: for bytes that will not be used again
// soon.
//
// # Safety
// `pool` is a handle; `to` is valid for writes of `len` bytes.
enum deepram_status deepram_load(const struct deepram_pool *pool,
                                 deepram_addr addr,
                                 void *to,
                                 size_t len);

// Copies `len` bytes of `from` to `addr`, as deepram_write() does: the counterpart of deepram_load().
//
// # Safety
// `pool` is a handle; `from` is valid for reads of `len` bytes.
enum deepram_status deepram_store(const struct deepram_pool *pool,
                                  deepram_addr addr,
                                  const void *from,
                                  size_t len);

// Copies `len` bytes from each of `count` addresses into `to`, one after the other. Many reads are in flight at once.
//
// # Safety
// `pool` is a handle; `addresses` points to `count` addresses; `to` is valid for writes of `count` times `len` bytes.
enum deepram_status deepram_gather(const struct deepram_pool *pool,
                                   const deepram_addr *addresses,
                                   size_t count,
                                   size_t len,
                                   void *to);

// Copies `len` bytes of `from` to each of `count` addresses, in order.
//
// # Safety
// `pool` is a handle; `addresses` points to `count` addresses; `from` is valid for reads of `count` times `len` bytes.
enum deepram_status deepram_scatter(const struct deepram_pool *pool,
                                    const deepram_addr *addresses,
                                    size_t count,
                                    size_t len,
                                    const void *from);

// Brings `len` bytes at `addr` into the DRAM cache in the background, as far as there is room.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_prefetch(const struct deepram_pool *pool, deepram_addr addr, uint64_t len);

// Writes `len` bytes at `addr` back if need be, and takes them out of the DRAM cache.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_evict(const struct deepram_pool *pool, deepram_addr addr, uint64_t len);

// Pins `len` bytes at `addr` in the DRAM cache (`pinned` is 1), or unpins them (0).
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_pin(const struct deepram_pool *pool,
                                deepram_addr addr,
                                uint64_t len,
                                int32_t pinned);

// Fills options with the defaults for a pool of `size` bytes of memory on each device.
//
// # Safety
// `options` is null or valid for a write.
enum deepram_status deepram_create_options_init(struct deepram_create_options *options, uint64_t size);

// Fills options with the defaults for a DRAM budget of `dram` bytes.
//
// # Safety
// `options` is null or valid for a write.
enum deepram_status deepram_open_options_init(struct deepram_open_options *options, uint64_t dram);

// Creates a pool in `count` new files or on block devices.
//
// # Safety
// `paths` points to `count` strings; `options` points to options.
enum deepram_status deepram_pool_create(const char *const *paths,
                                        size_t count,
                                        const struct deepram_create_options *options);

// Opens a pool that is in `count` files or on block devices, and stores its handle in `pool`.
//
// # Safety
// `paths` points to `count` strings; `options` points to options; `pool` is valid for a write.
enum deepram_status deepram_pool_open(const char *const *paths,
                                      size_t count,
                                      const struct deepram_open_options *options,
                                      struct deepram_pool **pool);

// Closes a pool: syncs nothing, frees temporary memory, unmaps. The handle stays valid, and all further calls on it return
// DEEPRAM_STATUS_CLOSED, until it is released.
//
// # Safety
// `pool` comes from deepram_pool_open() and has not been released.
enum deepram_status deepram_pool_close(struct deepram_pool *pool);

// Releases a handle, and closes the pool if it is open. No thread may use the handle any more. Null is allowed.
//
// # Safety
// `pool` is null, or comes from deepram_pool_open() and has not been released.
void deepram_pool_release(struct deepram_pool *pool);

// Stores the properties and the usage of a pool in `info`.
//
// # Safety
// `pool` is a handle; `info` is valid for a write.
enum deepram_status deepram_pool_info(const struct deepram_pool *pool, struct deepram_info *info);

// Stores the counters of a pool in `counters`, in a fixed order, and their number in `count`. With a capacity of 0 only
// the number is stored, and the call returns DEEPRAM_STATUS_BUFFER_TOO_SMALL.
//
// # Safety
// `pool` is a handle; `counters` is valid for writes of `capacity` counters; `count` is valid for a write.
enum deepram_status deepram_pool_stats(const struct deepram_pool *pool,
                                       struct deepram_counter *counters,
                                       size_t capacity,
                                       size_t *count);

// Stores the reasons why loads and stores through pointers failed since the last call as lines of text in `text`, which
// ends with a zero and is cut to `capacity` bytes. Stores the number of reasons in `count`.
//
// # Safety
// `pool` is a handle; `text` is valid for writes of `capacity` bytes; `count` is valid for a write.
enum deepram_status deepram_pool_take_errors(const struct deepram_pool *pool,
                                             char *text,
                                             size_t capacity,
                                             size_t *count);

// Changes the DRAM budget of an open pool to `dram` bytes.
//
// # Safety
// `pool` is a handle.
enum deepram_status deepram_pool_set_dram(const struct deepram_pool *pool, uint64_t dram);

// Gives `len` bytes at `addr` a name of 1 to 111 bytes, or points an existing name to them. Durable at the next sync.
//
// # Safety
// `pool` is a handle; `name` is a string.
enum deepram_status deepram_set_root(const struct deepram_pool *pool,
                                     const char *name,
                                     deepram_addr addr,
                                     uint64_t len);

// Stores the address and the length of a root in `addr` and `len`, of which either may be null.
//
// # Safety
// `pool` is a handle; `name` is a string; `addr` and `len` are null or valid for a write.
enum deepram_status deepram_get_root(const struct deepram_pool *pool,
                                     const char *name,
                                     deepram_addr *addr,
                                     uint64_t *len);

// Removes a root; its memory stays allocated.
//
// # Safety
// `pool` is a handle; `name` is a string.
enum deepram_status deepram_remove_root(const struct deepram_pool *pool, const char *name);

// Stores all roots in `roots`, in the order in which they were first set, and their number in `count`.
//
// # Safety
// `pool` is a handle; `roots` is valid for writes of `capacity` roots; `count` is valid for a write.
enum deepram_status deepram_roots(const struct deepram_pool *pool,
                                  struct deepram_root *roots,
                                  size_t capacity,
                                  size_t *count);

// Returns the name of a status in a few words; "unknown status" for a number without a name. The text is static.
const char *deepram_status_name(int32_t status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEEPRAM_H */
