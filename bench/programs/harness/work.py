"""The input of a program's run, and its outcome."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Work:
    """Sizes, tools and folder of one program's run."""

    settings: object
    tools: object
    folder: Path
    #: Approximate size of the data, bytes.
    data: int

    def path(self, tool):
        return self.tools.paths[tool]


@dataclass
class Outcome:
    """Result of a run; the output must be equal in all modes."""

    output: str
    #: Duration of the unpaced work, seconds: without phases whose requests come at a fixed rate.
    seconds: float
    #: Latencies of requests at a fixed rate, by phase: p50_us, p99_us, p999_us, max_us.
    latency: dict = field(default_factory=dict)
    #: Durations of the parts of the work, seconds, by name.
    parts: dict = field(default_factory=dict)
    #: Result of each test of a suite, by name.
    tests: dict = field(default_factory=dict)


def digest(*parts):
    """Checksum of bytes and files."""
    sum_ = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    sum_.update(block)
        else:
            sum_.update(part)
    return sum_.hexdigest()[:32]


def job(run_mode, argv, limit, files=(), **options):
    """Runs a program to its end; the outcome covers its standard output and the files that it wrote."""
    out = run_mode.run(argv, limit, **options)
    outcome = Outcome(digest(out, *files), run_mode.processes[-1].seconds)
    for file in files:
        file.unlink()
    return outcome


def suite(tests, seconds):
    """The outcome of a test suite: the result of every test must be equal."""
    return Outcome(digest(repr(sorted(tests.items())).encode()), seconds, tests=tests)


def difference(tests, expected):
    """One line that lists the tests in which two runs of a suite differ."""
    names = [name for name in {**expected, **tests} if tests.get(name) != expected.get(name)]
    told = [f"{name}: {tests.get(name, 'not run')}, not {expected.get(name, 'not run')}" for name in names[:8]]
    return f"{len(names)} tests differ: " + "; ".join(told)
