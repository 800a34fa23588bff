#!/usr/bin/env python3
"""Writes docs/reference/python.md from the docstrings and signatures of the package, to standard output."""

from __future__ import annotations

import inspect
import re

import deepram
from deepram import _array, errors

HEAD = """# Python package

`import deepram`. Sizes are bytes, or texts such as "64KiB", "512MiB" and "8GiB". [How to](../how-to/arrays-in-python.md) shows the use.

Made from the package's docstrings: `UPDATE_DOCS=1 cargo test -p deepram-python` writes this page.
"""

#: Sections of the page: title, and the objects in it.
SECTIONS = [
    ("Pools", [deepram.Pool, deepram.View, deepram.Token, deepram.Diff, deepram.Array]),
    ("Rows and hints", [deepram.gather, deepram.scatter, deepram.update, deepram.prefetch, deepram.evict, deepram.pin, deepram.unpin]),
    ("Paged memory", [deepram.run, deepram.Run]),
    ("Simulations: deepram.sim", [getattr(deepram.sim, name) for name in deepram.sim.__all__ if name != "Requests"]),
    ("Traces: deepram.trace", [getattr(deepram.trace, name) for name in deepram.trace.__all__]),
    ("Charts: deepram.plot", [getattr(deepram.plot, name) for name in deepram.plot.__all__]),
]
#: Classes that users call; objects of the others are results of functions and methods.
CALLED = (deepram.Pool, deepram.trace.Requests)
#: Special methods that are documented.
SPECIAL = ("__getitem__", "__setitem__", "__delitem__", "__iter__")


def text_of(thing) -> str:
    """Returns a docstring as Markdown."""
    text = inspect.getdoc(thing) or ""
    text = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
    lines = []
    in_list = False
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Returns|Raises|Attributes):", line):
            lines += ["", f"*{line[:-1]}*", ""]
            in_list = True
        elif in_list and re.match(r"    \S", line):
            head, _, rest = line.strip().partition(": ")
            lines.append(f"- `{head}`: {rest}" if rest and " " not in head.replace(", ", "") else f"- {line.strip()}")
        elif in_list and line.startswith("        "):
            lines.append("  " + line.strip())
        else:
            in_list = in_list and not line
            lines.append(line)
    text = "\n".join(lines)
    # Interactive examples become blocks.
    text = re.sub(r"((?:^(?:>>>|\.\.\.).*\n?(?:^(?!>>>|\s*$).*\n?)*)+)", r"```pycon\n\1\n```\n", text, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text.replace("\n\n```\n", "\n```\n")).strip()


def signature(thing, name: str) -> str:
    """Returns a call with its types as they stand in the source, a parameter a line if there are many."""
    parameters = []
    keyword_only = False
    found = inspect.signature(thing.__init__ if inspect.isclass(thing) else thing)
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            if not any(other.kind is other.VAR_POSITIONAL for other in found.parameters.values()):
                parameters.append("*")
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        text = f"{stars}{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            text += f" = {default.__name__ if inspect.isclass(default) else repr(default)}"
        parameters.append(text)
    result = found.return_annotation
    result = "" if inspect.isclass(thing) or result in ("None", found.empty) else f" -> {result}"
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){result}"


def describe(thing, name: str, level: str) -> list[str]:
    """Returns the lines about a class or function."""
    lines = [f"{level} {name}", ""]
    if not inspect.isclass(thing) or thing in CALLED:
        lines += ["```text", signature(thing, name), "```", ""]
    lines += [text_of(thing), ""]
    if not inspect.isclass(thing) or thing is deepram.Array:
        return lines
    if issubclass(thing, tuple):
        fields = [f"`{field}: {kind}`" for field, kind in thing.__annotations__.items()]
        return [*lines, "Fields: " + ", ".join(fields) + ".", ""]
    for member, value in vars(thing).items():
        if member.startswith("_") and member not in SPECIAL:
            continue
        if isinstance(value, property):
            lines += [f"{level}# {name}.{member}", "", text_of(value), ""]
        elif inspect.isfunction(value) and inspect.getdoc(value):
            shown = member.replace("_", r"\_") if member in SPECIAL else member
            lines += [f"{level}# {name}.{shown}", "", "```text", signature(value, member), "```", "", text_of(value), ""]
    return lines


def page() -> str:
    lines = [HEAD]
    for title, things in SECTIONS:
        lines += [f"## {title}", ""]
        for thing in things:
            lines += describe(thing, thing.__name__, "###")
    lines += ["## Exceptions: deepram.errors", "", "| exception | derives from | raised |", "|---|---|---|"]
    for name, thing in vars(errors).items():
        if inspect.isclass(thing) and issubclass(thing, errors.DeepramError):
            bases = ", ".join(base.__name__ for base in thing.__bases__)
            first = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
            lines.append(f"| `{name}` | {bases} | {first} |")
    assert _array.StaleArray.__doc__
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
