"""The documentation agrees with the package: the reference page, the how-to page, the README, docstrings and stubs."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import deepram
from deepram import errors

ROOT = Path(__file__).parents[4]


def test_the_reference_page_is_what_the_docstrings_say():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "crates/python/reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    page, made = ROOT / "docs/reference/python.md", reference.page()
    if sys.version_info < (3, 10):
        pytest.skip("signatures are written in another way before Python 3.10")
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(made)
    assert page.read_text() == made, "out of date: UPDATE_DOCS=1 cargo test -p deepram-python"


@pytest.mark.parametrize("page", ["docs/how-to/arrays-in-python.md", "README.md"])
def test_python_examples_of_a_page_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text()
    blocks = re.findall(r"(<!-- needs the command -->\n)?```python\n(.*?)```", text, re.S)
    assert blocks, f"{page} has no Python example"
    # The child of deepram.run finds functions in a module, not in a page.
    source = "\n".join(code for needs_command, code in blocks if not needs_command)
    names: dict = {"__name__": "page"}
    exec(compile(source, page, "exec"), names)
    if any(needs_command for needs_command, _ in blocks) and (os.environ.get("DEEPRAM") or shutil.which("deepram")):
        special = "\n".join(code for needs_command, code in blocks if needs_command)
        (tmp_path / "special.py").write_text("import numpy as np\nimport deepram\n" + indent_main(special))
        path = str(Path(deepram.__file__).parent.parent)
        done = subprocess.run(
            [sys.executable, "special.py"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def indent_main(source: str) -> str:
    """Moves what follows the functions behind the guard that a script with child processes has."""
    functions, _, rest = source.partition("\n\n")
    body = "\n".join("    " + line for line in rest.strip().splitlines())
    return f"{functions}\n\nif __name__ == '__main__':\n{body}\n"


@pytest.mark.parametrize("module", [deepram, deepram.sim], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


def test_every_public_object_is_documented():
    missing = []
    for module in (deepram, deepram.sim, deepram.trace, deepram.plot):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.getdoc(thing):
                missing.append(name)
            if inspect.isclass(thing) and thing.__module__.startswith("deepram"):
                members = [m for m in vars(thing).items() if not m[0].startswith("_") and callable(m[1])]
                missing += [f"{name}.{member}" for member, value in members if not inspect.getdoc(value)]
    assert missing == []


def test_there_is_an_exception_for_each_variant_of_the_error_of_the_pool():
    source = (ROOT / "crates/pool/src/error.rs").read_text()
    body = source[source.index("pub enum PoolError {") :]
    variants = re.findall(r"^    ([A-Z]\w+)(?: \{|\(|,)", body[: body.index("\n}\n")], re.M)
    assert len(variants) > 25
    named = {name.rstrip("_") for name in vars(errors)}
    assert [variant for variant in variants if f"{variant}Error" not in named] == []


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory):
    """A folder that the calls of mypy share, which saves half of their time."""
    pytest.importorskip("mypy")
    return str(tmp_path_factory.mktemp("mypy"))


def test_the_types_are_right(mypy_cache):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", mypy_cache],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (Path(deepram.__file__).parent / "py.typed").exists()


def test_users_of_the_types_see_them(tmp_path, mypy_cache):
    (tmp_path / "user.py").write_text(
        "import deepram\n"
        "pool = deepram.Pool('x', size='1GiB')\n"
        "reveal_type(pool['x'])\n"
        "reveal_type(pool.sync())\n"
        "pool.sync(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", mypy_cache, "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(Path(deepram.__file__).parent.parent)},
        capture_output=True,
        text=True,
    )
    assert "deepram._array.Array" in done.stdout and 'int"' in done.stdout and "Too many arguments" in done.stdout
