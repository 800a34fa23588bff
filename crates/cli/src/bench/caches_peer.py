# Runs libCacheSim's policies on a trace in its own binary format (oracleGeneral), for
# `deepram bench caches --peer`. Arguments: trace, requests, capacity, repeats, policies...
# Prints one JSON object a policy: its name, misses, seconds of each run with the peer's default
# hash table (2^24 buckets) and with one that fits the cache, which is faster.
import json
import sys
import time

import libcachesim as peer

MAKE = {
    "lru": lambda size, **table: peer.LRU(size, **table),
    "fifo": lambda size, **table: peer.FIFO(size, **table),
    "clock": lambda size, **table: peer.Clock(size, init_freq=0, n_bit_counter=1, **table),
    "clock2": lambda size, **table: peer.Clock(size, init_freq=0, n_bit_counter=2, **table),
    "sieve": lambda size, **table: peer.Sieve(size, **table),
    "s3fifo": lambda size, **table: peer.S3FIFO(size, **table),
    "arc": lambda size, **table: peer.ARC(size, **table),
}

trace, requests, capacity, repeats = sys.argv[1], *map(int, sys.argv[2:5])


def run(name, **table):
    seconds = []
    for _ in range(repeats):
        options = peer.ReaderInitParam(ignore_obj_size=True)
        reader = peer.TraceReader(trace, peer.TraceType.ORACLE_GENERAL_TRACE, options)
        cache = MAKE[name](capacity, **table)
        start = time.perf_counter()
        ratio, _ = cache.process_trace(reader)
        seconds.append(time.perf_counter() - start)
    return round(ratio * requests), seconds


for name in sys.argv[5:]:
    misses, seconds = run(name)
    _, fitted = run(name, hashpower=max(12, capacity.bit_length() + 1))
    print(json.dumps({"policy": name, "misses": misses, "seconds": seconds, "fitted": fitted}), flush=True)
