"""What a program is given to run, and what it gives back."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Work:
    """One program's part of the bench: its sizes, its tools, its folder."""

    settings: object
    tools: object
    folder: Path
    #: Bytes of DRAM under a limit, and about as many bytes of data as the program has.
    dram: int
    data: int

    def path(self, tool):
        return self.tools.paths[tool]


@dataclass
class Outcome:
    """What came out: must be equal in all ways."""

    output: str
    #: Seconds that the program took for what is not paced by a clock.
    seconds: float
    #: Latencies of requests at a fixed rate, by phase: p50_us, p99_us, p999_us, max_us.
    latency: dict = field(default_factory=dict)
    #: Further times, by name.
    parts: dict = field(default_factory=dict)
    #: Of a suite: the result of each test, by name.
    tests: dict = field(default_factory=dict)


def digest(*parts):
    """Bytes and files as one checksum."""
    sum_ = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    sum_.update(block)
        else:
            sum_.update(part)
    return sum_.hexdigest()[:32]


def job(way, argv, limit, files=(), **options):
    """The outcome of a program that runs to its end: its standard output and what it wrote."""
    out = way.run(argv, limit, **options)
    outcome = Outcome(digest(out, *files), way.processes[-1].seconds)
    for file in files:
        file.unlink()
    return outcome


def suite(tests, seconds):
    """The outcome of a suite of tests: which passed, failed and were left out must be the same."""
    return Outcome(digest(repr(sorted(tests.items())).encode()), seconds, tests=tests)


def difference(tests, expected):
    """In which tests two runs of a suite differ, in a line."""
    names = [name for name in {**expected, **tests} if tests.get(name) != expected.get(name)]
    told = [f"{name}: {tests.get(name, 'not run')}, not {expected.get(name, 'not run')}" for name in names[:8]]
    return f"{len(names)} tests differ: " + "; ".join(told)
