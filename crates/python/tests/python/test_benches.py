"""The Python benches run on small inputs; their libraries are installed for DEEPRAM_PYTHON_LIBRARIES=1 alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import deepram

ROOT = Path(__file__).parents[4]


def results_of(bench: str, folder: Path, *arguments: str) -> dict:
    """Runs a bench, and returns the results in its file."""
    environment = dict(os.environ, PYTHONPATH=str(Path(deepram.__file__).parent.parent))
    command = [sys.executable, str(ROOT / "bench" / bench), "--folder", str(folder), "--results", str(folder / "results")]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, check=False)
    if "no memory cgroup can be made" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "results").iterdir()
    file = json.loads(path.read_text())
    assert {"bench", "machine", "commit", "command", "load", "date", "version", "results"} == set(file)
    assert path.name.startswith(file["bench"]) and bench in file["command"]
    return file["results"]


def tables_of(folder: Path) -> str:
    """Returns a page with the tables of the results in a folder."""
    page = folder / "page.md"
    page.write_text("above\n<!-- python: begin -->\nold\n<!-- python: end -->\nbelow\n")
    subprocess.run([sys.executable, ROOT / "bench/python_tables.py", folder / "results", page], check=True)
    text = page.read_text()
    assert text.startswith("above\n<!-- python: begin -->\n\n## ") and text.endswith("<!-- python: end -->\nbelow\n")
    return text


def test_checkpoints_of_a_model_resume_after_a_kill_with_the_same_losses(tmp_path):
    pytest.importorskip("torch")
    small = ["--state", "16MiB", "--interval", "10", "--checkpoints", "3", "--dram", "32MiB"]
    results = results_of("torch_checkpoint.py", tmp_path, *small)
    ways = {way["way"]: way for way in results["ways"]}
    assert set(ways) == {"in-pool", "save", "torch.save", "dcp", "dcp-async"}
    assert all(way["resumed_losses_equal"] == 20 and len(way["checkpoints"]) == 3 for way in ways.values())
    state = results["state_bytes"]
    for way in ("in-pool", "save"):
        assert 0.05 * state <= ways[way]["bytes_written"] < 0.2 * state
    for way in ("torch.save", "dcp", "dcp-async"):
        assert ways[way]["bytes_written"] >= state
    assert all(f"\n| {way} | " in tables_of(tmp_path) for way in ways)


def test_arrays_beside_other_libraries_survive_a_kill(tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("h5py")
    results = results_of("python_arrays.py", tmp_path, "--size", "64MiB", "--dram", "32MiB")
    (peers,) = results["rounds"]
    assert set(peers) == {"deepram", "memmap", "zarr", "h5py"}
    assert not any("failed" in step for peer in peers.values() for step in peer.values())
    after = peers["deepram"]["reopen"]
    assert after["rows_as_durable"] == (64 << 20) // results["row_bytes"] and after["rows_torn_or_lost"] == 0
    assert "seconds" in peers["deepram"]["rollback"]
    assert all(f"\n| {peer} | " in tables_of(tmp_path) for peer in peers)
