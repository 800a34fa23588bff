"""Sweeps, here and on a Dask cluster."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import deepram
from deepram import errors

SPEC = """
system = "ssd"
workload = "uniform:span=1MiB,count=200"
[axes]
preset = ["z-ssd", "tlc"]
depth = { from = 1, to = 8, scale = "powers-of-two" }
seed = [1, 2, 3, 4, 5]
[pareto]
minimize = ["latency.mean_ns"]
maximize = ["throughput_requests_per_s"]
"""


@pytest.fixture
def spec(tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(SPEC)
    return file


def bytes_of(folder):
    return [(folder / name).read_bytes() for name in ("results.jsonl", "results.parquet")]


def test_the_results_do_not_depend_on_the_jobs(spec, tmp_path):
    calls = []
    one = deepram.sim.sweep(spec, out=tmp_path / "one", jobs=1, progress=lambda done, all: calls.append((done, all)))
    two = deepram.sim.sweep(spec, jobs=2)
    assert two.folder == tmp_path / "grid.results" and bytes_of(one.folder) == bytes_of(two.folder)
    assert len(one) == 40 == len(list(one)) and (one.failed, one.known) == (0, 0)
    assert calls == [(n + 1, 40) for n in range(40)]
    assert one.front and one.objectives == ["latency.mean_ns", "throughput_requests_per_s"]
    first = next(iter(one))
    assert first["axes"] == {"preset": "z-ssd", "depth": "1", "seed": "1"} and first["status"] == "done"


def test_an_interrupted_sweep_goes_on_with_the_same_bytes(spec, tmp_path):
    def stop(done, _):
        if done == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deepram.sim.sweep(spec, out=tmp_path / "stopped", jobs=2, progress=stop)
    resumed = deepram.sim.sweep(spec, out=tmp_path / "stopped")
    assert resumed.known >= 17
    whole = deepram.sim.sweep(spec, out=tmp_path / "whole")
    assert bytes_of(resumed.folder) == bytes_of(whole.folder)
    assert deepram.sim.sweep(spec, out=tmp_path / "whole").known == 40


def test_the_command_writes_the_same_bytes(spec, tmp_path):
    command = os.environ.get("DEEPRAM")
    if command is None:
        pytest.skip("the deepram command is not built")
    here = deepram.sim.sweep(spec, out=tmp_path / "here")
    subprocess.run([command, "sweep", spec, "--out", tmp_path / "there"], check=True, stdout=subprocess.DEVNULL)
    assert bytes_of(here.folder) == bytes_of(tmp_path / "there")


def test_a_failed_point_is_recorded(spec):
    spec.write_text(SPEC.replace('["z-ssd", "tlc"]', '["z-ssd", "none-such"]'))
    results = deepram.sim.sweep(spec)
    assert results.failed == 20
    assert all("none-such" in point["error"] for point in results if point["status"] == "failed")


def test_results_are_a_frame(spec):
    pandas = pytest.importorskip("pandas")
    frame = deepram.sim.sweep(spec).frame()
    assert isinstance(frame, pandas.DataFrame) and frame.shape[0] == 40
    assert frame.groupby("preset")["latency.mean_ns"].mean().loc["z-ssd"] > 0


def test_the_front_of_a_sweep_is_a_chart(spec):
    pytest.importorskip("matplotlib").use("Agg")
    results = deepram.sim.sweep(spec)
    axes = deepram.plot.pareto(results, "latency.mean_ns", "throughput_requests_per_s", by="preset")
    drawn = {points.get_label(): points.get_offsets() for points in axes.collections}
    assert {name: len(places) for name, places in drawn.items()} == {"z-ssd": 20, "tlc": 20, "Pareto front": len(results.front)}
    first = next(point for point in results if point["point"] == results.front[0])["result"]
    assert drawn["Pareto front"][0].tolist() == [first["latency"]["mean_ns"], first["throughput_requests_per_s"]]
    assert len(deepram.plot.pareto(results, "axis.depth", "latency.mean_ns").collections) == 2
    with pytest.raises(KeyError, match="latncy"):
        deepram.plot.pareto(results, "axis.depth", "latncy.mean_ns")


@pytest.mark.parametrize(
    ("text", "arguments", "kind", "part"),
    [
        (SPEC.replace("depth =", "deepth ="), {}, errors.SimError, "did you mean `depth`"),
        (SPEC, {"jobs": 0}, ValueError, "at least 1"),
        (SPEC, {"jobs": 2, "client": object()}, ValueError, "none with a client"),
    ],
)
def test_wrong_sweeps_say_what_would_be_right(spec, text, arguments, kind, part):
    spec.write_text(text)
    with pytest.raises(kind, match=part):
        deepram.sim.sweep(spec, **arguments)


def test_a_cluster_whose_workers_die_gives_the_same_bytes(spec, tmp_path):
    distributed = pytest.importorskip("distributed")
    alone = deepram.sim.sweep(spec, out=tmp_path / "alone")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            killed = []

            def kill(done, _):
                if done == 10:
                    worker = next(iter(cluster.workers.values()))
                    os.kill(worker.pid, 9)
                    killed.append(worker.pid)

            together = deepram.sim.sweep(spec, out=tmp_path / "together", client=client, progress=kill)
    assert killed and bytes_of(together.folder) == bytes_of(alone.folder)
    assert json.loads((together.folder / "results.jsonl").read_text().splitlines()[0])["point"] == 0
