"""memcached: filled, a Zipf mix at a fixed rate, every key verified. Nothing may be evicted."""

import signal

from harness.kv import Server
from harness.work import Outcome

NAME, NEEDS, DRAM, ROOM = "memcached", ["memcached", "kvload"], 1, 8
MIB = 1 << 20


def prepare(work):
    pass


def run(work, run_mode):
    argv = [work.path("memcached"), "-s", run_mode.folder / "socket", "-m", 2 * work.data // MIB, "-t", 2, "-u", "root"]
    server = Server(work, run_mode, "memcached", argv)
    server.ready()
    fill = server.load("fill")
    mix = server.mix(1)
    verify = server.load("verify")
    server.process.popen.send_signal(signal.SIGTERM)
    server.process.wait(60)
    parts = {"fill": fill["seconds"], "verify": verify["seconds"]}
    return Outcome(f"{server.keys} keys right", sum(parts.values()), {"mix": mix}, parts)
