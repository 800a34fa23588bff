"""stress-ng writes patterns to memory with all its methods, and verifies them. It runs for a fixed time: no wall time."""

from harness.run_modes import Failed
from harness.work import Outcome

NAME, NEEDS, DRAM, ROOM = "stress-ng", ["stress-ng"], 1, 8
SECONDS = 20


def prepare(work):
    pass


def run(work, run_mode):
    argv = [work.path("stress-ng"), "--vm", 2, "--vm-bytes", work.data, "--vm-method", "all", "--verify",
            "--timeout", SECONDS, "--temp-path", run_mode.folder, "--metrics-brief"]
    run_mode.run(argv, work.settings.patience, env=work.tools.environment)
    said = (run_mode.folder / "out.0").read_text() + run_mode.errors(0)
    if "successful run completed" not in said or "fail:" in said:
        raise Failed(f"stress-ng: {said[-400:]}")
    return Outcome("no error found", float(SECONDS))
