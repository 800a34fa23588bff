"""The cell magic ``%%deepram`` of IPython and Jupyter; ``%load_ext deepram`` loads it."""

from __future__ import annotations

import argparse
import ast
import builtins
import shlex
import types
from typing import TYPE_CHECKING, Any

from ._pool import size_in_bytes
from ._run import _pickler, call

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: Statistics that are shown first: their names, and what they are called.
SHOWN = {
    "dram_peak_bytes": "DRAM in use, peak",
    "paged_peak_bytes": "paged memory, peak",
    "swap_file_peak_bytes": "swap files, peak",
    "faults_major": "pages read from the swap file",
    "bytes_read": "read from the swap file",
    "bytes_written": "written to the swap file",
}


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise ValueError(f"%%deepram: {message}\n{self.format_usage()}")


def parser() -> argparse.ArgumentParser:
    """Returns the options of the magic."""
    options = _Arguments(prog="%%deepram", add_help=False, description="Run the cell in a child with paged memory.")
    options.add_argument("--dram", default="512MiB", help="DRAM of the child")
    options.add_argument("--store", help="folder of the swap file")
    options.add_argument("--out", default="", help="names to bring back, separated by commas")
    options.add_argument("--quiet", action="store_true", help="do not show the statistics")
    return options


def run_cell(
    source: str, values: dict[str, Any], modules: dict[str, str], out: list[str]
) -> tuple[dict[str, Any], str]:
    """Executes a cell; returns the wanted names and the text of its last expression. Runs in the child."""
    import importlib

    names: dict[str, Any] = {"__name__": "__main__", **values}
    for name, module in modules.items():
        names[name] = importlib.import_module(module)
    tree = ast.parse(source, "<%%deepram>")
    shown = ""
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<%%deepram>", "exec"), names)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<%%deepram>", "eval"), names)
        shown = "" if value is None else repr(value)
    missing = [name for name in out if name not in names]
    if missing:
        raise NameError(f"--out: the cell sets no {', '.join(missing)}")
    return {name: names[name] for name in out}, shown


def _inputs(source: str, namespace: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the values and the modules of the notebook that a cell uses."""
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    values, modules = {}, {}
    pickler = _pickler()
    for name in sorted(used & namespace.keys()):
        value = namespace[name]
        if isinstance(value, types.ModuleType):
            modules[name] = value.__name__
        elif not hasattr(builtins, name):
            try:
                pickler.dumps(value)
            except Exception as error:
                raise ValueError(f"%%deepram: {name} cannot be sent to the child: {error}") from error
            values[name] = value
    return values, modules


def _text(stats: dict[str, Any]) -> str:
    lines = []
    for name, meaning in SHOWN.items():
        if name in stats:
            value = stats[name]
            lines.append(f"{value / (1 << 20):12,.2f} MiB  {meaning}" if "bytes" in name else f"{value:16,}  {meaning}")
    return "\n".join(lines) or "\n".join(f"{name}: {value}" for name, value in list(stats.items())[:12])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magic."""

    def deepram(line: str, cell: str) -> None:
        """Runs the cell in a child process with paged memory: %%deepram --dram 512MiB --out result."""
        options = parser().parse_args(shlex.split(line))
        out = [name.strip() for name in options.out.split(",") if name.strip()]
        values, modules = _inputs(cell, shell.user_ns)
        command = ["--dram", str(size_in_bytes("--dram", options.dram))]
        if options.store:
            command += ["--store", options.store]
        run = call(run_cell, (cell, values, modules, out), {}, command, show_output=True)
        names, shown = run.value
        shell.user_ns.update(names)
        if shown:
            print(shown)
        if not options.quiet:
            print(_text(run.stats))

    shell.register_magic_function(deepram, "cell", "deepram")  # type: ignore[arg-type, no-untyped-call]
