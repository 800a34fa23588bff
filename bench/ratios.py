#!/usr/bin/env python3
"""Draws the chart of the README: throughput of the pager over that of swap and of mmap, from the newest result files.

Usage: bench/ratios.py RESULTS PICTURES
  RESULTS   folder of result files, docs/results
  PICTURES  folder for ratios-light.svg and ratios-dark.svg, docs/pictures
"""

import json
import math
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WORKLOADS = {"reads": "uniform reads", "updates": "uniform updates", "zipf": "Zipf reads", "scan": "scan"}
THEMES = {
    "light": {"text": "#1f2328", "soft": "#59636e", "grid": "#d0d7de", "swap": "#0969da", "mmap": "#8250df"},
    "dark": {"text": "#e6edf3", "soft": "#9198a1", "grid": "#30363d", "swap": "#58a6ff", "mmap": "#bc8cff"},
}
LEFT, RIGHT, TOP, ROW = 246, 780, 64, 30


def rows(folder):
    """Label, ratio to swap, ratio to mmap, and the file, for each workload and number of threads."""
    newest = {}
    for path in folder.glob("*.json"):
        file = json.loads(path.read_text())
        results = file["results"]
        # A compressed disk in memory is no flash.
        if (file["machine"].get("device") or "").startswith("/dev/zram"):
            continue
        if not isinstance(results, dict) or not isinstance(results.get("peers"), list):
            continue
        rates = {peer["peer"]: peer["rate"]["median"] for peer in results["peers"] if "rate" in peer}
        mmap = rates.get("mmap-random", rates.get("mmap"))
        if "pager" not in rates or "swap" not in rates or mmap is None or results["workload"] not in WORKLOADS:
            continue
        case = (list(WORKLOADS).index(results["workload"]), results["threads"])
        if case not in newest or newest[case][0]["date"] < file["date"]:
            pager = next(peer for peer in results["peers"] if peer["peer"] == "pager")
            # A ratio within a round, if it was recorded, excludes what changed between rounds.
            over_swap = pager.get("over_swap", {}).get("median", rates["pager"] / rates["swap"])
            newest[case] = (file, over_swap, rates["pager"] / mmap)
    for (workload, threads), (file, swap, mmap) in sorted(newest.items()):
        label = f"{list(WORKLOADS.values())[workload]}, {threads} thread{'s' if threads > 1 else ''}"
        yield label, swap, mmap, file


def chart(all_rows, colours):
    low = min(0.7, *(min(swap, mmap) * 0.85 for _, swap, mmap, _ in all_rows))
    high = max(2.0, *(max(swap, mmap) * 1.3 for _, swap, mmap, _ in all_rows))

    def x(value):
        return LEFT + math.log(value / low) / math.log(high / low) * (RIGHT - LEFT)

    bottom = TOP + ROW * len(all_rows)
    about = "; ".join(f"{label}: {swap:.2f} times swap, {mmap:.2f} times mmap" for label, swap, mmap, _ in all_rows)
    sources = sorted({f"commit {file['commit']}, {file['date'][:10]}" for *_, file in all_rows})
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 {bottom + 46}" width="840" height="{bottom + 46}" '
        'role="img" aria-labelledby="t d">',
        '<title id="t">Throughput of deepram run over that of swap and of mmap</title>',
        f'<desc id="d">{escape(about)}.</desc>',
        "<style>",
        '  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 13px; '
        f"fill: {colours['text']} }}",
        f"  .soft {{ fill: {colours['soft']}; font-size: 12px }}",
        f"  .grid {{ stroke: {colours['grid']} }}",
        f"  .one {{ stroke: {colours['soft']}; stroke-width: 1.5 }}",
        f"  .swap {{ fill: {colours['swap']} }}",
        f"  .mmap {{ fill: {colours['mmap']} }}",
        "</style>",
        f'<rect class="swap" x="{LEFT}" y="14" width="12" height="10" rx="2"/>'
        f'<text x="{LEFT + 18}" y="23">deepram run / swap</text>',
        f'<rect class="mmap" x="{LEFT + 170}" y="14" width="12" height="10" rx="2"/>'
        f'<text x="{LEFT + 188}" y="23">deepram run / mmap of a file</text>',
    ]
    for value in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
        if low <= value <= high:
            line = "one" if value == 1 else "grid"
            out.append(f'<path class="{line}" d="M{x(value):.1f} {TOP - 8}V{bottom}"/>')
            out.append(f'<text class="soft" x="{x(value):.1f}" y="{TOP - 14}" text-anchor="middle">{value:g} ×</text>')
    for n, (label, swap, mmap, _) in enumerate(all_rows):
        y = TOP + n * ROW
        out.append(f'<text x="{LEFT - 44}" y="{y + 17}" text-anchor="end">{label}</text>')
        for value, peer, down in ((swap, "swap", 2), (mmap, "mmap", 14)):
            first, last = sorted((x(1), x(value)))
            width = max(last - first, 1)
            out.append(
                f'<rect class="{peer}" x="{first:.1f}" y="{y + down}" width="{width:.1f}" height="10" rx="1.5"/>'
            )
            at, anchor = (last + 5, "start") if value >= 1 else (first - 5, "end")
            out.append(
                f'<text class="soft" x="{at:.1f}" y="{y + down + 9}" text-anchor="{anchor}">{value:.2f}</text>'
            )
    out += [
        f'<text class="soft" x="{x(1) - 6:.1f}" y="{bottom + 18}" text-anchor="end">← slower</text>',
        f'<text class="soft" x="{x(1) + 6:.1f}" y="{bottom + 18}">faster than the peer →</text>',
        f'<text class="soft" x="{RIGHT}" y="{bottom + 36}" text-anchor="end">{"; ".join(sources)}</text>',
        "</svg>",
    ]
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    all_rows = list(rows(Path(sys.argv[1])))
    if not all_rows:
        sys.exit(f"{sys.argv[1]} has no result file with pager, swap and mmap")
    for theme, colours in THEMES.items():
        Path(sys.argv[2], f"ratios-{theme}.svg").write_text(chart(all_rows, colours))


if __name__ == "__main__":
    main()
