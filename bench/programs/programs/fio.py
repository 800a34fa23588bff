"""fio with verification: large buffers in paged memory are filled and checked by direct and by buffered requests."""

import json

from harness.run_modes import Failed
from harness.work import Outcome

NAME, NEEDS, DRAM, ROOM = "fio", ["fio"], 1, 20
#: Engine, direct: the kernel accesses a request's buffer by direct I/O, from its io_uring threads, or by copying.
JOBS = [("libaio", 1), ("io_uring", 1), ("psync", 0)]
DEPTH = 16


def prepare(work):
    pass


def run(work, run_mode):
    seconds, parts, told = 0.0, {}, []
    for engine, direct in JOBS:
        # The buffers together are the data. With psync, which has one buffer for each thread, they are smaller.
        block = max(1 << 20, work.data // 2 // DEPTH >> 12 << 12)
        argv = [work.path("fio"), "--name=verified", f"--ioengine={engine}", f"--direct={direct}", "--rw=randwrite",
                f"--bs={block}", f"--iodepth={DEPTH}", f"--size={block * DEPTH * 2}", f"--directory={run_mode.folder}",
                "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--randseed=18", "--output-format=json"]
        out = run_mode.run([str(word) for word in argv], work.settings.patience, env=work.tools.environment)
        # fio may print notes before its report.
        report = json.loads(out[out.index(b"{"):])["jobs"][0]
        if report["error"]:
            raise Failed(f"fio {engine}: error {report['error']}")
        told.append(f"{engine}: {report['write']['io_bytes']} written, {report['read']['io_bytes']} verified")
        parts[engine] = run_mode.processes[-1].seconds
        seconds += parts[engine]
        for file in run_mode.folder.glob("verified.*"):
            file.unlink()
    return Outcome("; ".join(told), seconds, parts=parts)
