#!/usr/bin/env python3
"""Measures checkpoints of a PyTorch model whose state changes little: deepram beside torch.save and torch.distributed.checkpoint.

The model is an embedding table with a small network above it, trained by SGD with sparse gradients. A row of the table has 4 KiB,
a segment of a pool. Between two checkpoints, training changes 5 % of the rows, at random.

Each way of checkpointing runs in processes of its own, one after the other, and its files are deleted before the next:

1. training with a checkpoint at every interval: the stall of each checkpoint (the time until training goes on) and the bytes that
   the process caused to be written until the checkpoint was durable. The first checkpoint, of the whole state, counts apart.
2. training anew, killed by SIGKILL in the midst of an interval.
3. training resumed from the last checkpoint before the kill: its losses must be those of the first run, bit for bit.

  in-pool     parameters are arrays of a pool; a checkpoint is Pool.sync
  save        deepram.torch.Checkpoint.save, parameters in ordinary memory
  torch.save  torch.save to a new file, fsync, rename over the last one
  dcp         torch.distributed.checkpoint.save to a new folder, synced; then the last one is deleted
  dcp-async   torch.distributed.checkpoint.async_save; its stall is that of the call, and the wait for the checkpoint before it

Usage: bench/torch_checkpoint.py [--state 1GiB] [--changed 0.05] [--interval 100] [--checkpoints 5] [--dram 256MiB]
                                 [--ways in-pool,save,torch.save,dcp,dcp-async] [--folder DIR] [--results DIR]

The state of in-pool is in the DRAM of its pool and on the drive; the other ways have the whole state in ordinary memory.

It needs the packages deepram and torch. At its default size it takes 5 GiB of memory and 5 GiB of the folder's drive.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from python_arrays import size, written
from result_file import RunContext

WIDTH = 1024  # elements of a row: 4 KiB of float32
SEED = 1


# --- The model


class Training:
    """A model and the order in which it sees its rows: the same for the same sizes."""

    def __init__(self, rows: int, changed: float, interval: int) -> None:
        import torch

        torch.manual_seed(SEED)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.torch = torch
        self.rows, self.batch = rows, max(1, round(rows * changed / interval))
        self.interval = interval
        self.table = torch.nn.Embedding(rows, WIDTH, sparse=True)
        self.head = torch.nn.Sequential(torch.nn.Linear(WIDTH, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
        self.model = torch.nn.ModuleDict({"table": self.table, "head": self.head})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, number: int) -> float:
        """Trains on the rows of a step, and returns the loss."""
        import numpy as np

        # Within an interval every row occurs at most once: the steps take consecutive parts of a random order.
        within = number % self.interval * self.batch
        order = np.random.default_rng((SEED, number // self.interval))
        rows = order.choice(self.rows, self.batch * self.interval, replace=False)[within : within + self.batch]
        output = self.head(self.table(self.torch.from_numpy(rows)))
        loss = ((output - 1) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)


# --- The ways: open(training, folder, dram, state bytes); save(step); last() -> step of the last checkpoint or 0, loaded


class Save:
    """deepram.torch.Checkpoint."""

    def __init__(self, training: Training, folder: Path, dram: int, state: int) -> None:
        import deepram
        from deepram.torch import Checkpoint

        path = folder / "state.pool"
        made = path.exists()
        self.pool = deepram.Pool(path, size=None if made else state + state // 8 + (16 << 20), dram=dram)
        self.checkpoint = Checkpoint(self.pool, model=training.model, optimizer=training.optimizer)

    def last(self) -> int:
        return int(self.checkpoint.load()["step"]) if self.checkpoint.exists else 0

    def save(self, step: int) -> None:
        self.checkpoint.save(step=step)

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self.pool.close()


class InPool:
    """Parameters that live in a pool."""

    def __init__(self, training: Training, folder: Path, dram: int, state: int) -> None:
        import deepram
        from deepram.torch import tensor

        path = folder / "state.pool"
        made = path.exists()
        self.pool = deepram.Pool(path, size=None if made else state + state // 8 + (16 << 20), dram=dram)
        for name, parameter in training.model.named_parameters():
            home = self.pool[name] if made else self.pool.array(parameter.detach().numpy(), name=name)
            parameter.data = tensor(home)
        self.step = self.pool["step"] if made else self.pool.zeros(1, "int64", name="step")

    def last(self) -> int:
        return int(self.step[0])

    def save(self, step: int) -> None:
        self.step[0] = step
        self.pool.sync()

    finish = Save.finish

    def close(self) -> None:
        # What was not synced is not to be kept: the step belongs to the parameters of the last sync.
        self.pool.abandon()


class TorchSave:
    """torch.save."""

    def __init__(self, training: Training, folder: Path, dram: int, state: int) -> None:
        self.training, self.folder, self.path = training, folder, folder / "state.pt"

    def state(self, step: int) -> dict[str, Any]:
        return {"model": self.training.model.state_dict(), "optimizer": self.training.optimizer.state_dict(), "step": step}

    def last(self) -> int:
        if not self.path.exists():
            return 0
        found = self.training.torch.load(self.path)
        self.training.model.load_state_dict(found["model"])
        self.training.optimizer.load_state_dict(found["optimizer"])
        return int(found["step"])

    def save(self, step: int) -> None:
        new = self.folder / "new.pt"
        with new.open("wb") as file:
            self.training.torch.save(self.state(step), file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.path)
        sync_folder(self.folder)

    finish = Save.finish
    close = Save.finish


class Distributed(TorchSave):
    """torch.distributed.checkpoint, of one process."""

    def state(self, step: int) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.training.model, self.training.optimizer)
        return {"model": model, "optimizer": optimizer, "step": step}

    def checkpoints(self) -> list[Path]:
        # A folder without its metadata is of a checkpoint that was not finished.
        return sorted(path.parent for path in self.folder.glob("step-*/.metadata"))

    def last(self) -> int:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        if not self.checkpoints():
            return 0
        state = self.state(0)
        dcp.load(state, checkpoint_id=self.checkpoints()[-1])
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.training.model, self.training.optimizer, **parts)
        return int(state["step"])

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        older = self.checkpoints()
        dcp.save(self.state(step), storage_writer=self.writer(step))
        sync_folder(self.folder)
        for path in older:
            shutil.rmtree(path)

    def writer(self, step: int) -> Any:
        from torch.distributed.checkpoint import FileSystemWriter

        return FileSystemWriter(self.folder / f"step-{step:09}", sync_files=True)


class DistributedAsync(Distributed):
    """torch.distributed.checkpoint in the background."""

    def __init__(self, training: Training, folder: Path, dram: int, state: int) -> None:
        import torch.distributed as dist

        super().__init__(training, folder, dram, state)
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.waiting: Any = None
        self.older: list[Path] = []

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        self.finish()
        self.older = self.checkpoints()
        self.waiting = dcp.async_save(self.state(step), storage_writer=self.writer(step))

    def finish(self) -> None:
        if self.waiting is not None:
            self.waiting.result()
            self.waiting = None
            sync_folder(self.folder)
            for path in self.older:
                shutil.rmtree(path)

    def close(self) -> None:
        import torch.distributed as dist

        self.finish()
        dist.destroy_process_group()


WAYS = {"in-pool": InPool, "save": Save, "torch.save": TorchSave, "dcp": Distributed, "dcp-async": DistributedAsync}


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


# --- The steps of a process


def child(task: dict[str, Any]) -> None:
    """Trains from the last checkpoint to a step, or until its own kill, and prints losses and checkpoints as JSON."""
    training = Training(task["rows"], task["changed"], task["interval"])
    state = sum(p.numel() * p.element_size() for p in training.model.parameters())
    way = WAYS[task["way"]](training, Path(task["folder"]), task["dram"], state)
    began = time.monotonic()
    first = way.last()
    load_seconds = time.monotonic() - began
    losses, checkpoints = {}, []
    began = time.monotonic()
    before = written()
    if first == 0:
        way.save(0)
        way.finish()
        initial = {"seconds": round(time.monotonic() - began, 4), "bytes_written": written() - before}
    stalled = 0.0
    began = time.monotonic()
    before = written()
    for step in range(first, task["steps"]):
        if step == task["kill_at"]:
            # A checkpoint in the background ends first, so that the last one is known.
            way.finish()
            os.kill(os.getpid(), signal.SIGKILL)
        losses[step] = training.step(step).hex()
        if (step + 1) % task["interval"] == 0:
            stall = time.monotonic()
            way.save(step + 1)
            stall = time.monotonic() - stall
            stalled += stall
            checkpoints.append({"stall_seconds": round(stall, 4)})
            if task["way"] != "dcp-async":
                checkpoints[-1]["bytes_written"] = written() - before
                before = written()
    waited = time.monotonic()
    way.finish()
    stalled += time.monotonic() - waited
    if task["way"] == "dcp-async":
        # Writes of the background overlap: each checkpoint has its share of all.
        for checkpoint in checkpoints:
            checkpoint["bytes_written"] = (written() - before) // len(checkpoints)
    seconds = time.monotonic() - began
    way.close()
    result = {
        "losses": losses,
        "resumed_at": first,
        "load_seconds": round(load_seconds, 4),
        "checkpoints": checkpoints,
        "training_seconds": round(seconds, 3),
        "stalled_seconds": round(stalled, 3),
        "state_bytes": state,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    if first == 0:
        result["initial"] = initial
    print(json.dumps(result))


def run(task: dict[str, Any]) -> dict[str, Any]:
    arguments = [sys.executable, __file__, "--child", json.dumps(task)]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if task["kill_at"] is not None:
        if done.returncode != -signal.SIGKILL:
            raise SystemExit(f"{task['way']}: the process was not killed: status {done.returncode}\n{done.stderr}")
        return {}
    if done.returncode != 0:
        raise SystemExit(f"{task['way']}: status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one way whole, killed and resumed."""
    folder = Path(options.folder) / f"torch-checkpoint-{os.getpid()}"
    steps = options.interval * options.checkpoints
    task = {"way": way, "folder": str(folder), "rows": options.state // (4 * WIDTH), "changed": options.changed,
            "interval": options.interval, "steps": steps, "dram": options.dram, "kill_at": None}
    try:
        folder.mkdir(parents=True)
        whole = run(task)
        shutil.rmtree(folder)
        folder.mkdir()
        # The kill comes in the midst of the last interval but one.
        last = max(steps - 2 * options.interval, 0)
        run({**task, "kill_at": last + options.interval // 2})
        resumed = run(task)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    losses = whole.pop("losses")
    after = {step: loss for step, loss in losses.items() if int(step) >= last}
    if resumed["resumed_at"] != last or resumed["losses"] != after:
        raise SystemExit(f"{way}: resumed at step {resumed['resumed_at']} of {last}; the losses differ from those before the kill")
    later = whole["checkpoints"]
    result = {
        "way": way,
        "stall_seconds": {"median": statistics.median(c["stall_seconds"] for c in later),
                          "max": max(c["stall_seconds"] for c in later)},
        "bytes_written": statistics.median(c["bytes_written"] for c in later),
        "resumed_losses_equal": len(after),
        "resume_seconds": resumed["load_seconds"],
        **whole,
    }
    print(f"{way:10} stall {result['stall_seconds']['median']:.3f} s, {result['bytes_written'] / (1 << 20):.1f} MiB a checkpoint, "
          f"{len(after)} losses after the kill are the same", file=sys.stderr, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--state", type=size, default=1 << 30, help="bytes of the table (1GiB)")
    parser.add_argument("--changed", type=float, default=0.05, help="share of the rows that change between checkpoints (0.05)")
    parser.add_argument("--interval", type=int, default=100, help="steps between checkpoints (100)")
    parser.add_argument("--checkpoints", type=int, default=5, help="checkpoints of a run (5)")
    parser.add_argument("--dram", type=size, default=256 << 20, help="DRAM of the pool (256MiB)")
    parser.add_argument("--ways", default=",".join(WAYS), help="ways, separated by commas")
    parser.add_argument("--folder", default="/var/tmp", help="folder on the drive that is measured")
    parser.add_argument("--results", type=Path, help="folder for the result file; the results go to standard output unless given")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(json.loads(options.child))
    unknown = set(options.ways.split(",")) - set(WAYS)
    if unknown:
        parser.error(f"unknown ways: {', '.join(sorted(unknown))}; known: {', '.join(WAYS)}")
    if options.checkpoints < 2 or options.interval < 2:
        parser.error("give at least 2 checkpoints and 2 steps between them")
    context = RunContext("torch-checkpoint", Path(options.folder))
    import torch

    results = {
        "torch": torch.__version__,
        "state_bytes": options.state,
        "changed_share": options.changed,
        "interval_steps": options.interval,
        "pool_dram_bytes": options.dram,
        "ways": [measure(way, options) for way in options.ways.split(",")],
    }
    if options.results:
        print(context.write(options.results, results))
    else:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
