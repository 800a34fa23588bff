"""Charts with matplotlib. Each function draws into the given axes, or into new ones, and returns them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._pool import size_in_bytes
from .sim import Result, Sweep
from .trace import Characterization, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ._pool import Pool

__all__ = ["compare", "history", "intervals", "miss_ratio", "pareto", "spatial", "working_set"]

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("deepram.plot needs matplotlib: pip install matplotlib") from None
    try:
        import matplotlib.pyplot as plt

        return plt.subplots(layout="constrained")[1]
    except ImportError:
        return Figure(layout="constrained").subplots()


def _size(bytes_: float, _: Any = None) -> str:
    for unit, name in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if bytes_ >= unit:
            return f"{bytes_ / unit:g} {name}"
    return f"{bytes_:g} B"


def miss_ratio(
    curves: Characterization | Curve | Iterable[Curve] | Mapping[str, Curve], axes: Axes | None = None
) -> Axes:
    """Draws miss ratios over the size of the cache (bytes, logarithmic).

    Args:
        curves: a characterisation (its LRU curve, and its policies), a curve, several, or several by name.
        axes: where to draw; new axes unless given.
    """
    axes = _axes(axes)
    named: dict[str, Curve]
    if isinstance(curves, Characterization):
        named = {"lru, exact": curves.miss_ratio_curve(), **curves.policy_curves()}
    elif isinstance(curves, Curve):
        named = {curves.policy: curves}
    elif isinstance(curves, Mapping):
        named = dict(curves)
    else:
        named = {f"{curve.policy}": curve for curve in curves}
    for name, curve in named.items():
        axes.plot(curve.bytes.astype(float), curve.miss_ratio, label=name, marker="o" if len(curve) < 20 else None)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(_size)
    axes.set_ylim(0, 1)
    axes.set_xlabel("cache size")
    axes.set_ylabel("miss ratio")
    axes.legend()
    return axes


def working_set(characterization: Characterization, axes: Axes | None = None) -> Axes:
    """Draws the working sets: distinct bytes in windows of so many requests, mean and maximum."""
    axes = _axes(axes)
    rows = [row for row in characterization["working_sets"] if row.get("mean_pages") is not None]
    page = characterization.page_bytes
    windows = [row["window_requests"] for row in rows]
    axes.plot(windows, [row["mean_pages"] * page for row in rows], marker="o", label="mean")
    axes.plot(windows, [row["max_pages"] * page for row in rows], marker="o", label="maximum")
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(_size)
    axes.set_xlabel("window, requests")
    axes.set_ylabel("working set")
    axes.legend()
    return axes


def spatial(characterization: Characterization, axes: Axes | None = None) -> Axes:
    """Draws the shares of overlapped, sequential, strided and random requests, a bar for each setting."""
    axes = _axes(axes)
    classes = ("overlapped", "sequential", "strided", "random")
    rows = [row for row in characterization["spatial"] if row["all"] is not None]
    names = [f"{row['stride']}/{row['rod']}" if "stride" in row else str(at) for at, row in enumerate(rows)]
    below = [0.0] * len(rows)
    for at, name in enumerate(classes):
        shares = [row["all"][at] for row in rows]
        axes.bar(names, shares, bottom=below, label=name)
        below = [sum(pair) for pair in zip(below, shares)]
    axes.set_ylim(0, 1)
    axes.set_xlabel("stride in pages / requests compared")
    axes.set_ylabel("share of the requests")
    axes.legend()
    return axes


def compare(
    results: Mapping[str, Result] | Iterable[Result], key: str = "latency.mean_ns", axes: Axes | None = None
) -> Axes:
    """Draws one figure of several simulations as bars.

    Args:
        results: results by the names of their bars, or results, which are named by their systems.
        key: the dotted key of the figure.
        axes: where to draw; new axes unless given.
    """
    axes = _axes(axes)
    named = dict(results) if isinstance(results, Mapping) else {result["system"]: result for result in results}
    axes.bar(list(named), [result[key] for result in named.values()])
    axes.set_ylabel(key)
    return axes


def pareto(results: Sweep, x: str, y: str, by: str | None = None, axes: Axes | None = None) -> Axes:
    """Draws the points of a sweep over two figures, and rings around those on its Pareto front.

    Args:
        results: the results of :func:`deepram.sim.sweep`; points that failed are left out.
        x, y: dotted keys of figures, such as "latency.mean_ns"; "axis.NAME" is an axis, "axis.NAME_bytes" one of sizes.
        by: an axis whose values have a colour each.
        axes: where to draw; new axes unless given.

    Raises:
        KeyError: a point has no such figure or axis.
    """
    axes = _axes(axes)
    series: dict[str, list[tuple[float, float]]] = {}
    front: list[tuple[float, float]] = []
    for point in results:
        if "result" not in point:
            continue
        place = (_figure(point, x), _figure(point, y))
        series.setdefault(point["axes"][by] if by is not None else "all", []).append(place)
        if point["point"] in results.front:
            front.append(place)
    for name, places in series.items():
        axes.scatter([across for across, _ in places], [up for _, up in places], label=name)
    across, up = [across for across, _ in front], [up for _, up in front]
    axes.scatter(across, up, s=120, facecolors="none", edgecolors="black", label="Pareto front")
    for key, scale, axis in ((x, axes.set_xscale, axes.xaxis), (y, axes.set_yscale, axes.yaxis)):
        if key.endswith("_bytes"):
            scale("log", base=2)
            axis.set_major_formatter(_size)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend()
    return axes


def _figure(point: dict[str, Any], key: str) -> float:
    """Returns a figure of a point of a sweep, or the value of an axis."""
    if not key.startswith("axis."):
        return float(Result(json.dumps(point["result"]), "")[key])
    name = key.removeprefix("axis.")
    if name in point["axes"]:
        return float(point["axes"][name])
    return float(size_in_bytes(name, point["axes"][name.removesuffix("_bytes")]))


def intervals(result: Result, key: str = "mean_ns", axes: Axes | None = None) -> Axes:
    """Draws the time series of a simulation with ``interval``, over simulated milliseconds."""
    axes = _axes(axes)
    rows = result["intervals"]
    axes.plot([row["end_ns"] / 1e6 for row in rows], [row[key] for row in rows])
    axes.set_xlabel("simulated time, ms")
    axes.set_ylabel(key)
    return axes


def history(pool: Pool, axes: Axes | None = None) -> Axes:
    """Draws the bytes that each token of a pool's history wrote."""
    axes = _axes(axes)
    tokens = pool.history()
    axes.bar([str(token.token) for token in tokens], [token.bytes_written for token in tokens])
    axes.yaxis.set_major_formatter(_size)
    axes.set_xlabel("token")
    axes.set_ylabel("written since the token before")
    return axes
