"""NumPy: products of blocks, a transposition, gathers, updates and sorts of matrices larger than DRAM."""

from harness.tools import INPUTS
from harness.work import job

NAME, NEEDS, DRAM, ROOM = "numpy", ["numpy"], 1, 20


def prepare(work):
    pass


def run(work, run_mode):
    return job(run_mode, [work.path("numpy"), INPUTS / "matrix.py", work.data], work.settings.patience,
               env={"OPENBLAS_NUM_THREADS": "2"})
