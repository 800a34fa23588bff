"""Simulations, characterisations and charts."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import deepram
from deepram import errors

ROOT = Path(__file__).parents[4]
WORKLOAD = "zipf:theta=0.99,span=16MiB,count=2k,read=0.7"


def test_a_simulation_gives_the_same_bytes_for_the_same_seed():
    one, two = (deepram.sim.run("ssd", WORKLOAD, depth=4) for _ in range(2))
    assert one.json == two.json and json.loads(one.json)["seed"] == 1
    assert deepram.sim.run("ssd", WORKLOAD, depth=4, seed=2).json != one.json
    assert one["requests"] == 2000 and one["latency.mean_ns"] > 0
    assert "throughput" in one.table and one.flat()["latency.mean_ns"] == one["latency.mean_ns"]
    assert "requests" in one and len(list(one)) == len(one)


def test_every_system_is_named_and_settings_are_listed():
    assert {"dram", "nvmm", "ssd", "flatflash", "pool"} <= set(deepram.sim.systems())
    assert "nand.read" in deepram.sim.settings("ssd")
    assert "zipf" in deepram.sim.workloads()


def test_settings_change_the_result():
    slow = deepram.sim.run("ssd", WORKLOAD, set={"nand.read": "500us"})
    assert slow["latency.mean_ns"] > deepram.sim.run("ssd", WORKLOAD)["latency.mean_ns"]
    assert slow.json == deepram.sim.run("ssd", WORKLOAD, set=["nand.read=500us"]).json


def test_arrays_are_requests():
    random = np.random.default_rng(3)
    offsets = random.integers(0, 1000, 3000) * 4096
    requests = deepram.sim.Requests(offsets, 4096, random.random(3000) < 0.5)
    result = deepram.sim.run("ssd", trace=requests)
    assert result["requests"] == 3000 == len(requests)
    timed = deepram.sim.Requests(offsets, 4096, False, np.arange(3000) * 1e-3)
    assert deepram.sim.run("ssd", trace=timed)["simulated_time_ns"] >= 2.9e9


def test_unusual_requests_are_warned_of():
    late = deepram.sim.Requests([0, 4096, 8192], 4096, False, [0, 2e-3, 1e-3])
    with pytest.warns(UserWarning, match="1 of 3 requests have an earlier arrival time"):
        deepram.sim.run("ssd", trace=late)


def test_arrays_and_a_trace_file_of_the_same_requests_give_the_same_figures(tmp_path):
    file = tmp_path / "trace.csv"
    rows = (f"{n},write,{n % 7 * 4096},4096\n" for n in range(100))
    file.write_text("time_us,op,offset,size\n" + "".join(rows))
    arrays = deepram.sim.Requests([n % 7 * 4096 for n in range(100)], 4096, True, [n * 1e-6 for n in range(100)])
    for more in ({}, {"processor": "nvmm-host"}):
        system = "dram" if more else "ssd"
        one, two = (dict(deepram.sim.run(system, trace=trace, **more)) for trace in (file, arrays))
        assert (one.pop("workload"), two.pop("workload")) == (str(file), "arrays") and one == two


def test_the_options_of_the_command_are_those_of_the_function():
    import inspect

    tatp = {"clients": 2, "requests": 50, "logging": "own", "work": "5us", "persist": ["0..1MiB"]}
    assert deepram.sim.run("flatflash", "tatp", **tatp)["requests"] > 0
    assert deepram.sim.run("nvmm", "uniform:span=1MiB,count=100", prefetch=2, dram="1MiB", wrap=True)["requests"] == 100
    source = (ROOT / "crates/sim/src/simulation/options.rs").read_text()
    listed = source[source.index("pub const OPTIONS") :]
    names = re.findall(r'"([a-z-]+)"', listed[: listed.index("];")])
    parameters = set(inspect.signature(deepram.sim.run).parameters)
    assert {name.replace("-", "_") for name in names} == parameters - {"set", "config"}


def test_a_signal_ends_a_simulation():
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        deepram.sim.run("ssd", "uniform:span=1GiB,count=200M", wrap=True)


def test_a_processor_uses_a_memory_system():
    result = deepram.sim.run("dram", "uniform:span=16MiB,count=4k", processor="nvmm-host", threads=2, cores=2)
    assert result["requests"] > 0


@pytest.mark.parametrize(
    ("arguments", "kind", "part"),
    [
        ({"system": "sdd", "workload": WORKLOAD}, errors.SimError, "did you mean ssd"),
        ({"system": "ssd", "workload": "zpif:span=1MiB"}, errors.TraceError, "zipf"),
        ({"system": "ssd"}, errors.SimError, "neither workload nor trace"),
        ({"system": "ssd", "workload": WORKLOAD, "trace": "x.csv"}, errors.SimError, "exclude each other"),
        ({"system": "ssd", "workload": "uniform:span=1MiB"}, ValueError, "endless"),
        ({"system": "ssd", "workload": WORKLOAD, "set": {"nand.raed": "1us"}}, errors.SimError, "nand.read"),
        ({"system": "ssd", "workload": WORKLOAD, "set": ["a=1", "a=2"]}, ValueError, "given twice"),
        ({"system": "ssd", "workload": WORKLOAD, "dram": "1GiB"}, ValueError, "nvmm"),
        ({"system": "dram", "workload": WORKLOAD, "precondition": "steady"}, ValueError, "is for ssd"),
        ({"system": "ssd", "workload": WORKLOAD, "precondition": "old"}, ValueError, "steady"),
        ({"system": "ssd", "workload": WORKLOAD, "think": "5 parsecs"}, ValueError, "think"),
        ({"system": "ssd", "workload": WORKLOAD, "threads": 0}, ValueError, "threads: .0. is not a whole number from 1"),
        ({"system": "ssd", "workload": WORKLOAD, "filled": 0.5}, errors.SimError, "filled needs precondition"),
        ({"system": "ssd", "workload": WORKLOAD, "warm_up": 2000}, errors.SimError, "^warm_up 2000 covers all"),
        ({"system": "ssd", "workload": WORKLOAD, "object_slots": 0}, errors.SimError, "object_slots: expected at least"),
        ({"system": "ssd", "workload": WORKLOAD, "prefetch": 2}, errors.SimError, "^prefetch is for nvmm"),
        ({"system": "ssd", "trace": "no/such/trace.csv"}, FileNotFoundError, "no/such/trace.csv"),
    ],
)
def test_wrong_arguments_of_a_simulation_say_what_would_be_right(arguments, kind, part):
    with pytest.raises(kind, match=part):
        deepram.sim.run(**arguments)


def test_wrong_columns_are_refused():
    for arguments, part in [
        (([[1]],), "one dimension"),
        (([1, 2], [1, 2, 3]), "3 values for 2"),
        (([-1],), "negative"),
        (([1.5],), "no integer"),
    ]:
        with pytest.raises(ValueError, match=part):
            deepram.sim.Requests(*arguments)


def test_results_are_frames():
    pandas = pytest.importorskip("pandas")
    results = [deepram.sim.run("ssd", WORKLOAD, depth=depth) for depth in (1, 4)]
    frame = deepram.sim.frame(results)
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 2
    assert frame["latency.mean_ns"].tolist() == [result["latency.mean_ns"] for result in results]
    assert results[0].frame().shape[0] == 1
    timed = deepram.sim.run("ssd", WORKLOAD, interval="1ms")
    assert len(timed.intervals()) > 1 and "completed" in timed.intervals()
    with pytest.raises(ValueError, match="polars"):
        frame = results[0].frame("excel")


def test_results_are_polars_frames():
    polars = pytest.importorskip("polars")
    frame = deepram.sim.run("ssd", WORKLOAD).frame("polars")
    assert isinstance(frame, polars.DataFrame) and frame["requests"][0] == 2000


def test_the_miss_ratio_curve_is_that_of_an_lru_cache():
    random = np.random.default_rng(5)
    pages = (random.zipf(1.3, 3000) % 200).astype(np.int64)
    traced = deepram.trace.characterize(deepram.trace.Requests(pages * 4096, 4096), page=4096)
    curve = traced.miss_ratio_curve()
    assert curve.accesses == 3000 and (np.diff(curve.hit_ratio) > 0).all()
    for size in (1, 7, 50):
        stack: list[int] = []
        misses = 0
        for page in pages:
            if page in stack:
                misses += stack.index(page) >= size
                stack.remove(page)
            else:
                misses += 1
            stack.insert(0, page)
        below = np.flatnonzero(curve.bytes <= size * 4096)
        ratio = curve.miss_ratio[below[-1]] if below.size else 1.0
        assert round(ratio * 3000) == misses
    assert curve.size_for(2.0) is None and curve.size_for(0.01) == curve.bytes[curve.hit_ratio >= 0.01][0]


def test_reads_and_writes_have_curves_of_their_own():
    requests = deepram.trace.Requests([0, 0, 8192, 0], 4096, [False, True, True, False])
    traced = deepram.trace.characterize(requests, page="4KiB")
    assert traced.miss_ratio_curve("read").accesses == 2 == traced.miss_ratio_curve("write").accesses
    with pytest.raises(ValueError, match="'read'"):
        traced.miss_ratio_curve("trim")


def test_policies_and_samples():
    spec = "zipf:theta=0.9,span=64MiB,count=20k"
    traced = deepram.trace.characterize(spec, policies=["lru", "s3fifo"], cache_sizes=["1MiB", "4MiB"])
    curves = traced.policy_curves()
    assert set(curves) == {"lru", "s3fifo"} and curves["lru"].bytes.tolist() == [1 << 20, 4 << 20]
    exact = traced.miss_ratio_curve()
    at = exact.hit_ratio[exact.bytes <= 4 << 20][-1]
    assert abs(curves["lru"].hit_ratio[1] - at) < 1e-9
    assert len(deepram.trace.characterize(spec, sample=0.5).miss_ratio_curve()) > 3
    assert traced["records"] == 20_000 and "requests" in repr(traced)


def test_a_trace_file_is_characterised(tmp_path):
    file = tmp_path / "trace.csv"
    file.write_text("0,read,0,4096\n1,write,8192,4096\n2,read,0,4096\n")
    assert "csv" in deepram.trace.formats()
    (tmp_path / "disksim").write_text("0 0 303567 7 0\n26214000 1 240840 6 1\n")
    assert deepram.trace.characterize(tmp_path / "disksim")["records"] == 2
    assert deepram.trace.characterize(str(tmp_path / "disksim"), limit=1)["records"] == 1
    for source, kind, part in [
        (tmp_path / "none", FileNotFoundError, "none"),
        ("a/b", FileNotFoundError, "no such trace"),
        (5, TypeError, "neither"),
        ("zipf:span=1MiB", ValueError, "endless"),
        ("bogus", errors.TraceError, "bogus"),
    ]:
        with pytest.raises(kind, match=part):
            deepram.trace.characterize(source)
    with pytest.raises(ValueError, match="not both"):
        deepram.trace.characterize("zipf:count=9", sample=0.1, sample_pages=100)
    with pytest.raises(ValueError, match="lru"):
        deepram.trace.characterize("zipf:count=9", policies=["lur"])


def test_charts(path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    spec = "zipf:theta=0.9,span=16MiB,count=5k"
    traced = deepram.trace.characterize(spec, policies=["lru", "arc"], window=10)
    axes = deepram.plot.miss_ratio(traced)
    assert len(axes.lines) == 3 and axes.get_xlabel() == "cache size"
    assert len(deepram.plot.miss_ratio(traced.miss_ratio_curve(), axes).lines) == 4
    assert deepram.plot.working_set(traced).lines
    assert len(deepram.plot.spatial(traced).patches) == 12
    results = {depth: deepram.sim.run("ssd", WORKLOAD, depth=depth, interval="1ms") for depth in (1, 4)}
    assert len(deepram.plot.compare({str(depth): result for depth, result in results.items()}).patches) == 2
    assert deepram.plot.intervals(results[1]).lines
    with deepram.Pool(path, size="16MiB", dram="16MiB") as pool:
        pool["x"] = [1]
        pool.sync()
        assert len(deepram.plot.history(pool).patches) == 2
    axes.figure.savefig(path.parent / "chart.svg")
