"""Data programs in Python and Node: one script each, with the size of its data as argument and checksums as output."""

from harness.tools import INPUTS
from harness.work import job

#: These settings fix the order of additions, and make the libraries use two processors on every machine.
THREADS = {"POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}


class Script:
    """A script of inputs/, run by the tool that has its library."""

    DRAM, ROOM = 2, 100

    def __init__(self, name, tool, script, options=(), env=None, part=1):
        self.NAME, self.NEEDS, self._part = name, [tool], part
        self._script, self._options, self._env = script, options, {**THREADS, **(env or {})}

    def prepare(self, work):
        pass

    def run(self, work, run_mode):
        argv = [work.path(self.NEEDS[0]), *self._options, INPUTS / self._script, int(work.data * self._part)]
        return job(run_mode, argv, work.settings.patience, env=self._env)


#: Name, tool, script. Node accesses half as much data at random. The libraries have 60 to 200 MiB of code, and use as much DRAM
#: before they load data.
ALL = [
    Script("pandas", "pandas", "pandas_frames.py"),
    Script("polars", "polars", "polars_frames.py"),
    Script("duckdb", "duckdb", "duckdb_queries.py"),
    Script("scikit-learn", "sklearn", "sklearn_models.py"),
    Script("xgboost", "xgboost", "xgboost_model.py", env={"OMP_NUM_THREADS": "2"}),
    Script("node", "node", "heap.js", options=["--max-old-space-size=8192"], part=1 / 2),
]
