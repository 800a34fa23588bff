// A std::pmr::vector that is larger than the DRAM that it uses: its memory resource allocates in a pool.
//
//     c++ -std=c++17 -O2 vector.cpp $(pkg-config --cflags --libs deepram) -o vector && ./vector vector.pool

#include <deepram.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory_resource>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t MIB = std::uint64_t{1} << 20;
constexpr std::size_t NUMBERS = std::size_t{8} << 20; // 64 MiB

void check(deepram_status status, const char *what)
{
    if (status != DEEPRAM_STATUS_OK)
        throw std::runtime_error(std::string(what) + ": " + deepram_last_error());
}

// A pool that closes when it goes out of scope.
class Pool {
public:
    Pool(const char *path, std::uint64_t dram)
    {
        deepram_open_options options;
        check(deepram_open_options_init(&options, dram), "options");
        options.mapping = DEEPRAM_MAPPING_USER_ONLY;
        check(deepram_pool_open(&path, 1, &options, &pool_), "opening the pool");
    }
    ~Pool() { deepram_pool_release(pool_); }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    operator deepram_pool *() const { return pool_; }

private:
    deepram_pool *pool_ = nullptr;
};

// Allocates in a pool, in whole pages of 64 KiB: for large containers. Memory is temporary, so a crash leaves none behind.
class PoolResource final : public std::pmr::memory_resource {
public:
    explicit PoolResource(deepram_pool *pool) : pool_(pool) {}

private:
    static constexpr std::size_t ALIGNMENT = 1 << 16;

    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        deepram_addr addr;
        void *memory;
        if (alignment > ALIGNMENT
            || deepram_alloc(pool_, bytes, DEEPRAM_LIFETIME_TEMPORARY, &addr) != DEEPRAM_STATUS_OK)
            throw std::bad_alloc();
        if (deepram_pointer(pool_, addr, bytes, &memory) != DEEPRAM_STATUS_OK) {
            deepram_free(pool_, addr, bytes);
            throw std::bad_alloc();
        }
        return memory;
    }

    void do_deallocate(void *memory, std::size_t bytes, std::size_t) override
    {
        deepram_addr addr;
        if (deepram_address_of(pool_, memory, &addr) == DEEPRAM_STATUS_OK)
            deepram_free(pool_, addr, bytes);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    deepram_pool *pool_;
};

std::uint64_t counter(deepram_pool *pool, const std::string &name)
{
    std::size_t count = 0;
    deepram_pool_stats(pool, nullptr, 0, &count);
    std::vector<deepram_counter> counters(count);
    check(deepram_pool_stats(pool, counters.data(), counters.size(), &count), "counters");
    for (const deepram_counter &counter : counters)
        if (name == counter.name)
            return counter.value;
    throw std::runtime_error("there is no counter " + name);
}

void run(const char *path)
{
    deepram_create_options options;
    check(deepram_create_options_init(&options, NUMBERS * sizeof(std::uint64_t) + MIB), "options");
    check(deepram_pool_create(&path, 1, &options), "creating the pool");
    Pool pool(path, 32 * MIB); // half of the numbers
    PoolResource resource(pool);
    {
        std::pmr::vector<std::uint64_t> numbers(&resource);
        numbers.resize(NUMBERS);
        std::iota(numbers.begin(), numbers.end(), 1);
        const std::uint64_t sum = std::accumulate(numbers.begin(), numbers.end(), std::uint64_t{0});
        std::printf("sum: %llu\n", static_cast<unsigned long long>(sum));
    }
    deepram_info info;
    check(deepram_pool_info(pool, &info), "properties");
    std::printf("allocated at the end: %llu\n", static_cast<unsigned long long>(info.allocated));
    std::printf("within the budget: %s\n", counter(pool, "dram_bytes") <= 32 * MIB ? "yes" : "no");
    std::printf("evicted more than fits: %s\n", counter(pool, "evictions") * info.segment > 16 * MIB ? "yes" : "no");
}

} // namespace

int main(int argc, char **argv)
{
    try {
        run(argc > 1 ? argv[1] : "vector.pool");
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
