/* A client of Redis and memcached that knows the right value of every key.
 *
 * A value follows from its key and its version, and a key always goes through the same connection, whose answers
 * come in order. So the client knows the right answer of every read, to the byte. A file keeps the versions from one
 * call to the next.
 *
 *   kvload fill   sets every key to its next version, as fast as the server accepts the requests
 *   kvload verify gets every key; every byte must be right
 *   kvload mix    gets and sets keys chosen by Zipf's law at a fixed rate. Requests fall due at moments drawn
 *                 beforehand (exponential gaps), whether or not earlier ones are answered, and their latency counts
 *                 from those moments: the latency includes waiting behind a slow request.
 *
 * With --save-at S a mix stops after S seconds until all requests are answered, makes Redis fork and save (BGSAVE),
 * copies the versions to --snapshot, and goes on. The dump must hold exactly these versions. Requests that fall due
 * meanwhile wait, and their latency includes that wait.
 *
 * Prints one JSON object. Exit status: 0 success; 1 an answer was wrong; 2 wrong usage or no connection to the server.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 8, MAX_VALUE = 2048, OUT = 1 << 16, IN = 1 << 16 };
static const double NEVER = 1e30;
static const double PATIENCE = 120; /* time limit without any answer, seconds */

struct request {
    double due; /* seconds after the start */
    uint32_t key;
    uint32_t version; /* version read or stored; set when the request is sent */
    bool write;
};

struct connection {
    int fd;
    struct request *requests;
    size_t count, sent, answered;
    char out[OUT], in[IN];
    size_t out_from, out_to, in_to;
};

static struct {
    const char *mode, *model, *snapshot, *socket;
    bool redis;
    uint32_t keys;
    double rate, seconds, theta, writes, save_at;
    uint64_t seed;
} options = {.theta = 0.99, .writes = 0.1, .save_at = -1, .seed = 1};

static uint32_t *versions;
static struct connection all[CONNECTIONS];
static double *latencies;
static size_t measured;

static void __attribute__((noreturn, format(printf, 2, 3))) fail(int status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "kvload: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    exit(status);
}

static void *get(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) fail(2, "no memory for %zu things of %zu bytes", count, size);
    return memory;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* One step of SplitMix64, which is also a good hash. */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t state;
static uint64_t draw(void) { return mixed(state++); }
static double unit(void) { return (double)(draw() >> 11) / 9007199254740992.0; }

/* Writes the value of a key in a version, and returns its size: 768 to 1,279 bytes, so that updates change the size. */
static size_t value(uint32_t key, uint32_t version, char *to) {
    uint64_t seed = mixed((uint64_t)version << 32 | key);
    size_t size = 768 + seed % 512;
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = mixed(seed + at);
        memcpy(to + at, &word, 8); /* the buffer has space for one more word */
    }
    return size;
}

static void load_versions(void) {
    versions = get(options.keys, sizeof *versions);
    FILE *file = fopen(options.model, "rb");
    if (!file && errno == ENOENT && !strcmp(options.mode, "fill")) return;
    if (!file) fail(2, "%s: %s", options.model, strerror(errno));
    if (fread(versions, sizeof *versions, options.keys, file) != options.keys)
        fail(2, "%s does not hold the versions of %u keys", options.model, options.keys);
    fclose(file);
}

static void save_versions(const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(versions, sizeof *versions, options.keys, file) != options.keys || fclose(file))
        fail(2, "%s: %s", path, strerror(errno));
}

static void open_connection(struct connection *one) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(options.socket) >= sizeof address.sun_path) fail(2, "%s: too long for a socket", options.socket);
    strcpy(address.sun_path, options.socket);
    one->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof address) ||
        fcntl(one->fd, F_SETFL, O_NONBLOCK))
        fail(2, "%s: %s", options.socket, strerror(errno));
}

/* Appends a request to the output buffer. Returns false if the buffer has no space. */
static bool encode(struct connection *one, struct request *request) {
    if (OUT - one->out_to < MAX_VALUE + 128) return false;
    char *to = one->out + one->out_to;
    unsigned key = request->key;
    char bytes[MAX_VALUE];
    if (!request->write) {
        request->version = versions[key];
        one->out_to += (size_t)(options.redis ? sprintf(to, "*2\r\n$3\r\nGET\r\n$14\r\nkey:%010u\r\n", key)
                                              : sprintf(to, "get key:%010u\r\n", key));
        return true;
    }
    request->version = ++versions[key];
    size_t size = value(key, request->version, bytes);
    size_t head = (size_t)(options.redis
                               ? sprintf(to, "*3\r\n$3\r\nSET\r\n$14\r\nkey:%010u\r\n$%zu\r\n", key, size)
                               : sprintf(to, "set key:%010u 0 0 %zu\r\n", key, size));
    memcpy(to + head, bytes, size);
    memcpy(to + head + size, "\r\n", 2);
    one->out_to += head + size + 2;
    return true;
}

/* Writes the right answer to a request, and returns its size. */
static size_t expected(const struct request *request, char *to) {
    if (request->write) return (size_t)sprintf(to, options.redis ? "+OK\r\n" : "STORED\r\n");
    char bytes[MAX_VALUE];
    size_t size = value(request->key, request->version, bytes);
    size_t head = (size_t)(options.redis ? sprintf(to, "$%zu\r\n", size)
                                         : sprintf(to, "VALUE key:%010u 0 %zu\r\n", request->key, size));
    memcpy(to + head, bytes, size);
    return head + size + (size_t)sprintf(to + head + size, options.redis ? "\r\n" : "\r\nEND\r\n");
}

static void wrong(const struct request *request, const char *got, size_t size, const char *must) {
    size_t at = 0;
    while (at < size && got[at] == must[at]) at++;
    char line[48] = "";
    for (size_t i = 0; i < sizeof line - 1 && i < size && got[i] >= ' '; i++) line[i] = got[i];
    fail(1, "wrong answer: key %u, version %u, %s: differs at byte %zu of the answer, which begins with '%s'",
         request->key, request->version, request->write ? "set" : "get", at, line);
}

/* Checks all complete answers in the input buffer, and returns their number. */
static size_t take(struct connection *one, double start) {
    size_t from = 0, taken = 0;
    char must[MAX_VALUE + 64];
    while (one->answered < one->sent) {
        struct request *request = &one->requests[one->answered];
        size_t size = expected(request, must), have = one->in_to - from;
        size_t compared = have < size ? have : size;
        if (memcmp(one->in + from, must, compared)) wrong(request, one->in + from, have, must);
        if (have < size) break;
        from += size;
        one->answered++;
        taken++;
        if (latencies) latencies[measured++] = now() - start - request->due;
    }
    if (one->answered == one->sent && from < one->in_to) fail(1, "an answer without a request");
    memmove(one->in, one->in + from, one->in_to - from);
    one->in_to -= from;
    return taken;
}

static void push(struct connection *one) {
    while (one->out_from < one->out_to) {
        ssize_t done = send(one->fd, one->out + one->out_from, one->out_to - one->out_from, MSG_NOSIGNAL);
        if (done < 0 && errno == EAGAIN) break;
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(2, "the server is gone: %s", strerror(errno));
        one->out_from += (size_t)done;
    }
    memmove(one->out, one->out + one->out_from, one->out_to - one->out_from);
    one->out_to -= one->out_from;
    one->out_from = 0;
}

static size_t pull(struct connection *one, double start) {
    size_t taken = 0;
    for (;;) {
        ssize_t done = recv(one->fd, one->in + one->in_to, IN - one->in_to, 0);
        if (done == 0) fail(2, "the server closed the connection");
        if (done < 0 && errno == EAGAIN) return taken;
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) fail(2, "the server is gone: %s", strerror(errno));
        one->in_to += (size_t)done;
        taken += take(one, start);
    }
}

/* Makes Redis fork and save. All earlier requests have been answered. */
static void save(void) {
    static const char command[] = "BGSAVE\r\n", must[] = "+Background saving started\r\n";
    int fd = all[0].fd;
    if (send(fd, command, sizeof command - 1, MSG_NOSIGNAL) != sizeof command - 1) fail(2, "BGSAVE not sent");
    char answer[128];
    for (size_t have = 0; have < sizeof must - 1;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, (int)PATIENCE * 1000) != 1) fail(2, "no answer to BGSAVE");
        ssize_t done = recv(fd, answer + have, sizeof answer - 1 - have, 0);
        if (done <= 0) fail(2, "the server is gone: %s", strerror(errno));
        have += (size_t)done;
        if (memcmp(answer, must, have < sizeof must - 1 ? have : sizeof must - 1))
            fail(1, "BGSAVE: %.*s", (int)have, answer);
    }
    save_versions(options.snapshot);
}

/* Sends each request when it falls due, with at most `window` unanswered requests per connection. Returns the seconds. */
static double drive(size_t window) {
    double start = now(), heard = start, saved = options.save_at < 0 ? NEVER : options.save_at;
    for (;;) {
        double time = now() - start, next = saved;
        bool hold = time >= saved, left = false;
        size_t under_way = 0;
        struct pollfd polls[CONNECTIONS];
        for (int i = 0; i < CONNECTIONS; i++) {
            struct connection *one = &all[i];
            while (!hold && one->sent < one->count && one->sent - one->answered < window &&
                   one->requests[one->sent].due <= time && encode(one, &one->requests[one->sent]))
                one->sent++;
            push(one);
            if (one->sent < one->count && one->sent - one->answered < window && one->requests[one->sent].due < next)
                next = one->requests[one->sent].due;
            left |= one->answered < one->count;
            under_way += one->sent - one->answered;
            polls[i] = (struct pollfd){.fd = one->fd, .events = (short)(POLLIN | (one->out_to ? POLLOUT : 0))};
        }
        if (hold && !under_way) {
            save();
            saved = NEVER;
            continue;
        }
        if (!left) return now() - start;
        double wait = hold ? 1 : next - (now() - start);
        wait = wait < 0 ? 0 : wait > 1 ? 1 : wait;
        struct timespec most = {(time_t)wait, (long)((wait - floor(wait)) * 1e9)};
        if (ppoll(polls, CONNECTIONS, &most, NULL) < 0 && errno != EINTR) fail(2, "ppoll: %s", strerror(errno));
        for (int i = 0; i < CONNECTIONS; i++)
            if (polls[i].revents && pull(&all[i], start)) heard = now();
        if (!under_way) heard = now();
        if (now() - heard > PATIENCE) fail(2, "%zu requests without an answer for %.0f s", under_way, PATIENCE);
    }
}

static void add(struct connection *one, double due, uint32_t key, bool write) {
    one->requests[one->count++] = (struct request){.due = due, .key = key, .write = write};
}

/* Plans one request for every key, in random order; all are due at the start. */
static void plan_all(const uint32_t *order, bool write) {
    for (int i = 0; i < CONNECTIONS; i++) all[i].requests = get(options.keys, sizeof(struct request));
    for (uint32_t i = 0; i < options.keys; i++) add(&all[order[i] % CONNECTIONS], 0, order[i], write);
}

/* Plans the mix; the popularity of a key is its rank in `order`. */
static size_t plan_mix(const uint32_t *order) {
    size_t most = (size_t)(options.rate * options.seconds * 1.2 + 1000);
    double *sum = get(options.keys, sizeof *sum), total = 0;
    for (uint32_t i = 0; i < options.keys; i++) sum[i] = total += pow(i + 1, -options.theta);
    for (int i = 0; i < CONNECTIONS; i++) all[i].requests = get(most, sizeof(struct request));
    double due = 0;
    size_t count = 0;
    while (count < most && (due += -log(1 - unit()) / options.rate) < options.seconds) {
        double at = unit() * total;
        uint32_t low = 0, high = options.keys - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (sum[middle] > at) high = middle;
            else low = middle + 1;
        }
        add(&all[order[low] % CONNECTIONS], due, order[low], unit() < options.writes);
        count++;
    }
    free(sum);
    return count;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    size_t at = (size_t)ceil(part * (double)measured);
    return measured ? latencies[at ? at - 1 : 0] * 1e6 : 0;
}

static double number(const char *name, const char *text) {
    char *end;
    double result = strtod(text, &end);
    if (*end || end == text) fail(2, "%s %s: a number is wanted", name, text);
    return result;
}

static void read_options(int count, char **words) {
    if (count < 2) fail(2, "fill, verify or mix?");
    options.mode = words[1];
    for (int i = 2; i < count; i += 2) {
        const char *name = words[i], *text = words[i + 1];
        if (i + 1 == count) fail(2, "%s what?", name);
        if (!strcmp(name, "--protocol")) {
            options.redis = !strcmp(text, "redis");
            if (!options.redis && strcmp(text, "memcached")) fail(2, "--protocol redis or memcached, not %s", text);
        } else if (!strcmp(name, "--socket")) options.socket = text;
        else if (!strcmp(name, "--model")) options.model = text;
        else if (!strcmp(name, "--snapshot")) options.snapshot = text;
        else if (!strcmp(name, "--keys")) options.keys = (uint32_t)number(name, text);
        else if (!strcmp(name, "--rate")) options.rate = number(name, text);
        else if (!strcmp(name, "--seconds")) options.seconds = number(name, text);
        else if (!strcmp(name, "--writes")) options.writes = number(name, text);
        else if (!strcmp(name, "--theta")) options.theta = number(name, text);
        else if (!strcmp(name, "--save-at")) options.save_at = number(name, text);
        else if (!strcmp(name, "--seed")) options.seed = (uint64_t)number(name, text);
        else fail(2, "unknown option %s", name);
    }
    if (!options.socket || !options.model || !options.keys) fail(2, "--socket, --model and --keys are needed");
    if (options.save_at >= 0 && (!options.redis || !options.snapshot)) fail(2, "--save-at: Redis and --snapshot");
}

int main(int count, char **words) {
    read_options(count, words);
    load_versions();
    /* The order is the same in every call, so that the popularity of keys does not change between mixes. */
    uint32_t *order = get(options.keys, sizeof *order);
    state = mixed(42);
    for (uint32_t i = 0; i < options.keys; i++) {
        uint32_t at = (uint32_t)(draw() % (i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    state = mixed(options.seed);
    size_t window = 32, requests = options.keys;
    if (!strcmp(options.mode, "fill")) plan_all(order, true);
    else if (!strcmp(options.mode, "verify")) plan_all(order, false);
    else if (!strcmp(options.mode, "mix")) {
        if (options.rate <= 0 || options.seconds <= 0) fail(2, "mix: --rate and --seconds are needed");
        requests = plan_mix(order);
        latencies = get(requests, sizeof *latencies);
        window = 1024;
    } else fail(2, "fill, verify or mix, not %s", options.mode);
    for (int i = 0; i < CONNECTIONS; i++) open_connection(&all[i]);
    double seconds = drive(window);
    save_versions(options.model);
    printf("{\"requests\": %zu, \"seconds\": %.3f", requests, seconds);
    if (latencies) {
        qsort(latencies, measured, sizeof *latencies, ascending);
        printf(", \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, \"max_us\": %.0f", percentile(0.5),
               percentile(0.99), percentile(0.999), percentile(1));
    }
    printf("}\n");
    return 0;
}
