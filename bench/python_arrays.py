#!/usr/bin/env python3
"""Measures arrays larger than DRAM: deepram beside numpy.memmap, zarr and h5py, under one memory limit.

A float32 array is filled, then, each in a process of its own: summed, gathered from at random rows, updated in place at
1 % of its rows and made durable, and killed within a second update that nobody makes durable. After the kill it is opened
again, and the rows are counted: those of the last durable state, those of the update under way, and all others.
deepram then returns to the token before the first update.

Each process is in a memory cgroup (v1 or v2) with the DRAM of the array plus what Python takes by itself, so the page
cache counts too. The cgroup is made below that of this process, which needs the right to (root).

Usage: bench/python_arrays.py [--size 8GiB] [--dram 1GiB] [--peers deepram,memmap,zarr,h5py] [--rounds 1]
                              [--folder DIR] [--results DIR]

The packages numpy, zarr and h5py come from a registry; a peer whose package is missing is left out with a message. The files of
one peer exist at a time: 1.3 times the size of the array.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

from result_file import RunContext

ROW = 1024  # elements: rows of 4 KiB
GATHERED = 20_000
SEED = 1
PYTHON_ITSELF = 160 << 20  # bytes that the interpreter and its libraries take beside the array's DRAM
CHUNK_ROWS = 1024  # of zarr and h5py: chunks of 4 MiB


# --- The peers: open(path, rows, mode) -> (array, durable, close)


class Deepram:
    name = "deepram"

    def __init__(self, folder: Path, rows: int, dram: int, create: bool) -> None:
        import deepram

        self.module = deepram
        size = rows * ROW * 4 + (16 << 20)
        # Flash for the array, three updates of 1 % and the room that reclamation needs; by default it would be twice as much.
        flash = {"size": size, "flash": max(size * 13 // 10, 128 << 20)} if create else {}
        self.pool = deepram.Pool(folder / "array.pool", dram=dram, **flash)
        self.array = self.pool.zeros((rows, ROW), "float32", name="a") if create else self.pool["a"]

    def durable(self) -> int:
        return self.pool.sync()

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.module.gather(self.array, rows)

    def update(self, rows: np.ndarray, value: float) -> None:
        for row in rows:
            self.array[row] = value

    def total(self) -> float:
        return float(self.array.sum(dtype=np.float64))

    def close(self) -> None:
        self.pool.close()


class Memmap:
    name = "memmap"

    def __init__(self, folder: Path, rows: int, dram: int, create: bool) -> None:
        mode = "w+" if create else "r+"
        self.array = np.memmap(folder / "array.raw", "float32", mode, shape=(rows, ROW))

    def durable(self) -> int:
        self.array.flush()
        return 0

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.array[rows])

    update = Deepram.update
    total = Deepram.total

    def close(self) -> None:
        self.array.flush()


class Zarr:
    name = "zarr"

    def __init__(self, folder: Path, rows: int, dram: int, create: bool) -> None:
        import zarr

        if create:
            # The rows are constant: with compression the device would be left out.
            layout = {"shape": (rows, ROW), "chunks": (CHUNK_ROWS, ROW), "dtype": "float32"}
            path = str(folder / "array.zarr")
            if hasattr(zarr, "create_array"):
                self.array = zarr.create_array(path, **layout, compressors=None)
            else:
                self.array = zarr.open_array(path, mode="w", **layout, compressor=None)
        else:
            self.array = zarr.open_array(str(folder / "array.zarr"), mode="r+")
        self.folder = folder

    def durable(self) -> int:
        # zarr has no operation of its own for this.
        descriptor = os.open(self.folder, os.O_RDONLY)
        libc_syncfs(descriptor)
        os.close(descriptor)
        return 0

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return self.array.oindex[rows, :]

    def update(self, rows: np.ndarray, value: float) -> None:
        self.array.oindex[rows, :] = value

    def total(self) -> float:
        step = CHUNK_ROWS
        return sum(float(self.array[at : at + step].sum(dtype=np.float64)) for at in range(0, self.array.shape[0], step))

    def close(self) -> None:
        pass


class H5py:
    name = "h5py"

    def __init__(self, folder: Path, rows: int, dram: int, create: bool) -> None:
        import h5py

        self.file = h5py.File(folder / "array.h5", "w" if create else "r+")
        if create:
            self.file.create_dataset("a", (rows, ROW), "float32", chunks=(CHUNK_ROWS, ROW))
        self.array = self.file["a"]
        self.folder = folder

    def durable(self) -> int:
        self.file.flush()
        descriptor = os.open(self.folder / "array.h5", os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        return 0

    def gather(self, rows: np.ndarray) -> np.ndarray:
        # h5py takes ascending rows, each once.
        unique, back = np.unique(rows, return_inverse=True)
        return self.array[unique, :][back]

    def update(self, rows: np.ndarray, value: float) -> None:
        for row in rows:
            self.array[row] = value

    total = Zarr.total

    def close(self) -> None:
        self.file.close()


PEERS = {peer.name: peer for peer in (Deepram, Memmap, Zarr, H5py)}


def libc_syncfs(descriptor: int) -> None:
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        raise OSError(ctypes.get_errno(), "syncfs")


# --- The steps, each in a process of its own


def random_rows(rows: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, rows, count)


def step_fill(peer, rows: int) -> dict:
    for at in range(0, rows, CHUNK_ROWS):
        end = min(at + CHUNK_ROWS, rows)
        peer.array[at:end] = np.arange(at, end, dtype=np.float32)[:, None]
    return {"token": peer.durable()}


def step_sum(peer, rows: int) -> dict:
    total, wanted = peer.total(), float(np.arange(rows, dtype=np.float32).sum(dtype=np.float64)) * ROW
    if total != wanted:
        raise SystemExit(f"the sum is {total}, not {wanted}")
    return {}


def step_gather(peer, rows: int) -> dict:
    wanted = random_rows(rows, GATHERED, SEED)
    for at in range(0, GATHERED, 1000):
        part = wanted[at : at + 1000]
        if not np.array_equal(peer.gather(part)[:, 0], part.astype(np.float32)):
            raise SystemExit("wrong rows were gathered")
    return {"rows_per_s": True}


def step_update(peer, rows: int) -> dict:
    peer.update(np.unique(random_rows(rows, rows // 100, SEED + 1)), -1.0)
    return {"token": peer.durable()}


def step_kill(peer, rows: int) -> dict:
    peer.update(np.unique(random_rows(rows, rows // 100, SEED + 2)), -2.0)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def step_reopen(peer, rows: int) -> dict:
    """Counts the rows of each state after the kill. Opening is part of the time."""
    updated = np.zeros(rows, bool)
    updated[random_rows(rows, rows // 100, SEED + 1)] = True
    under_way = np.zeros(rows, bool)
    under_way[random_rows(rows, rows // 100, SEED + 2)] = True
    counts = dict.fromkeys(("rows_as_durable", "rows_of_the_killed_update", "rows_torn_or_lost"), 0)
    for at in range(0, rows, CHUNK_ROWS):
        part = np.asarray(peer.array[at : at + CHUNK_ROWS])
        numbers = np.arange(at, at + len(part))
        durable = np.where(updated[numbers], np.float32(-1), numbers.astype(np.float32))
        as_durable = (part == durable[:, None]).all(axis=1)
        as_killed = (part == -2).all(axis=1) & under_way[numbers]
        counts["rows_as_durable"] += int(as_durable.sum())
        counts["rows_of_the_killed_update"] += int(as_killed.sum())
        counts["rows_torn_or_lost"] += int((~as_durable & ~as_killed).sum())
    return counts


def step_rollback(peer, rows: int, token: int) -> dict:
    peer.pool.rollback(token)
    if peer.array[random_rows(rows, rows // 100, SEED + 1)[0], 0] < 0:
        raise SystemExit("the rollback did not return to the first state")
    return {}


def child(task: dict) -> None:
    folder, rows = Path(task["folder"]), task["rows"]
    began, before = time.monotonic(), written()
    peer = PEERS[task["peer"]](folder, rows, task["dram"], task["step"] == "fill")
    opened = time.monotonic()
    if task["step"] == "rollback":
        result = step_rollback(peer, rows, task["token"])
    else:
        result = globals()[f"step_{task['step']}"](peer, rows)
    now = time.monotonic()
    result["seconds"] = round(now - opened, 4)
    result["open_seconds"] = round(opened - began, 4)
    if result.pop("rows_per_s", None):
        result["rows_per_s"] = round(GATHERED / (now - opened), 1)
    peer.close()
    result["close_seconds"] = round(time.monotonic() - now, 4)
    result["bytes_written"] = written() - before
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


def written() -> int:
    """Bytes that this process has caused to be written to storage."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


# --- The memory limit


class Limit:
    """A memory cgroup for the children."""

    def __init__(self, bytes_: int) -> None:
        self.folder = None
        v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        if (v1 / "memory.limit_in_bytes").exists():
            own = next(path for _, names, path in lines if "memory" in names.split(","))
            candidates, file = [v1 / own.lstrip("/"), v1], "memory.limit_in_bytes"
        else:
            own = next((path for _, names, path in lines if names == ""), "/")
            candidates, file = [v2 / own.lstrip("/"), v2], "memory.max"
        for parent in candidates:
            folder = parent / f"deepram-bench-{os.getpid()}"
            try:
                folder.mkdir()
                (folder / file).write_text(str(bytes_))
                self.folder = folder
                return
            except OSError as error:
                problem = error
                if folder.exists():
                    folder.rmdir()
        raise SystemExit(f"no memory cgroup can be made ({problem}): run as root, where cgroups are writable")

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        for _ in range(50):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)


def run(limit: Limit, task: dict) -> dict:
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)],
        preexec_fn=limit.enter,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if task["step"] == "kill" and done.returncode == -signal.SIGKILL:
        return {}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        return {"failed": "out of memory" if done.returncode == -signal.SIGKILL else last[0]}
    return json.loads(done.stdout)


def drop_page_cache(folder: Path) -> None:
    """Makes the next step read from the device."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def measure(peer: str, arguments: argparse.Namespace) -> dict:
    folder = Path(arguments.folder) / f"python-arrays-{peer}-{os.getpid()}"
    folder.mkdir(parents=True)
    limit = Limit(arguments.dram + PYTHON_ITSELF)
    results: dict[str, dict] = {}
    try:
        task = {"peer": peer, "folder": str(folder), "rows": arguments.size // (4 * ROW), "dram": arguments.dram}
        steps = ["fill", "sum", "gather", "update", "kill", "reopen"] + (["rollback"] if peer == "deepram" else [])
        for step in steps:
            drop_page_cache(folder)
            task["step"] = step
            if step == "rollback":
                task["token"] = results["fill"]["token"]
            results[step] = run(limit, task)
            print(f"{peer:8} {step:9} {json.dumps(results[step])}", file=sys.stderr, flush=True)
            if "failed" in results[step]:
                break
        results["bytes_on_disk"] = {
            "bytes": sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
        }
    finally:
        limit.remove()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def size(text: str) -> int:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=size, default=8 << 30, help="bytes of the array")
    parser.add_argument("--dram", type=size, default=1 << 30, help="bytes of DRAM")
    parser.add_argument("--peers", default=",".join(PEERS), help="peers, separated by commas")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", default="/var/tmp", help="folder on the drive that is measured")
    parser.add_argument("--results", type=Path, help="folder for the result file; the results go to standard output unless given")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    unknown = set(arguments.peers.split(",")) - set(PEERS)
    if unknown:
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    context = RunContext("python-arrays", Path(arguments.folder))
    needed = {"memmap": "numpy"}
    peers = []
    for peer in arguments.peers.split(","):
        if importlib.util.find_spec(needed.get(peer, peer)) is None:
            print(f"{peer} is left out: the package is not installed", file=sys.stderr)
        else:
            peers.append(peer)
    rounds = [{peer: measure(peer, arguments) for peer in peers} for _ in range(arguments.rounds)]
    results = {
        "versions": {package: version_of(package) for package in ("numpy", "zarr", "h5py")},
        "size_bytes": arguments.size,
        "dram_bytes": arguments.dram,
        "limit_bytes": arguments.dram + PYTHON_ITSELF,
        "gathered_rows": GATHERED,
        "row_bytes": 4 * ROW,
        "rounds": rounds,
    }
    if arguments.results:
        print(context.write(arguments.results, results))
    else:
        print(json.dumps(results, indent=2))


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
