"""The tutorial notebook runs, prints what it shows, and is the page of the book."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import deepram

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docs/tutorials"
NOTEBOOK = FOLDER / "trace-to-decision.ipynb"
PAGE = NOTEBOOK.with_suffix(".md")
#: Charts look the same each time, and their text stays text.
SETUP = """
import matplotlib
matplotlib.rcParams["svg.hashsalt"] = "deepram"
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["figure.figsize"] = (6.4, 3.4)
import matplotlib_inline.backend_inline
matplotlib_inline.backend_inline.set_matplotlib_formats("svg", metadata={"Date": None})
"""


def joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def printed(cell: dict) -> str:
    return "".join(joined(output["text"]) for output in cell.get("outputs", ()) if output["output_type"] == "stream")


def charts(cell: dict) -> list[str]:
    data = [output["data"] for output in cell.get("outputs", ()) if "data" in output]
    return [joined(kinds["image/svg+xml"]) for kinds in data if "image/svg+xml" in kinds]


def page_of(notebook: dict) -> tuple[str, dict[str, str]]:
    """Returns a notebook as a page of the book, and the charts in it by their files."""
    parts = [f"<!-- Made from {NOTEBOOK.name}: UPDATE_DOCS=1 cargo test -p deepram-python. Do not edit. -->"]
    pictures: dict[str, str] = {}
    for cell in notebook["cells"]:
        source = joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if printed(cell):
            parts.append(f"```text\n{printed(cell).rstrip()}\n```")
        for chart in charts(cell):
            name = f"{NOTEBOOK.stem}-{len(pictures) + 1}.svg"
            pictures[name] = re.sub(r"[ \t]+$", "", chart, flags=re.M).rstrip() + "\n"
            parts.append(f"![Chart {len(pictures)}]({name})")
    link = f"This page shows the notebook [{NOTEBOOK.name}]({NOTEBOOK.name}) with its results."
    return "\n\n".join([*parts[:2], link, *parts[2:]]) + "\n", pictures


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copy(FOLDER / "orders.trace", folder)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    setup = nbformat.v4.new_code_cell("%matplotlib inline\n" + SETUP)
    notebook.cells.insert(0, setup)
    environment = {**os.environ, "PYTHONPATH": str(Path(deepram.__file__).parent.parent)}
    environment.pop("MPLBACKEND", None)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment)
    del notebook.cells[0]
    return notebook


def test_the_notebook_runs_and_prints_what_it_shows(executed):
    stored = json.loads(NOTEBOOK.read_text())
    if os.environ.get("UPDATE_DOCS"):
        store(stored, executed)
    for cell, shown in zip(executed.cells, stored["cells"]):
        assert printed(cell) == printed(shown), "out of date: UPDATE_DOCS=1 cargo test -p deepram-python"
        # Bytes of charts belong to the version of matplotlib.
        assert len(charts(cell)) == len(charts(shown))
    assert sum(len(charts(cell)) for cell in executed.cells) == 4


def store(stored: dict, executed: dict) -> None:
    """Puts the outputs of a run into the notebook, without what differs between equal runs."""
    for cell, run in zip(stored["cells"], executed["cells"]):
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            if printed(run):
                text = printed(run).splitlines(keepends=True)
                cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": text})
            for chart in charts(run):
                data = {"image/svg+xml": chart.splitlines(keepends=True), "text/plain": ["<Figure>"]}
                cell["outputs"].append({"data": data, "metadata": {}, "output_type": "display_data"})
    NOTEBOOK.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    text, pictures = page_of(stored)
    PAGE.write_text(text)
    for name, picture in pictures.items():
        (FOLDER / name).write_text(picture)


def test_the_page_is_the_notebook():
    text, pictures = page_of(json.loads(NOTEBOOK.read_text()))
    assert PAGE.read_text() == text, "out of date: UPDATE_DOCS=1 cargo test -p deepram-python"
    assert {path.name for path in FOLDER.glob("*.svg")} == set(pictures)
    assert all((FOLDER / name).read_text() == picture for name, picture in pictures.items())
