"""PostgreSQL: pgbench with four clients and a fixed random seed, sorts and joins in large work_mem, a check of all balances."""

import os
import shutil
import signal
import subprocess
import time

from harness.run_modes import Failed
from harness.work import Outcome, digest

NAME, NEEDS, DRAM, ROOM = "postgres", ["postgres", "setpriv"], 1, 100
MIB = 1 << 20
#: A user other than root, since PostgreSQL refuses to run as root. It keeps the capability that userfaultfd requires.
USER = 65534
TRANSACTIONS = 800
QUERY = """SET work_mem = '{memory}MB'; SET max_parallel_workers_per_gather = 0;
SELECT count(*), sum(abalance), md5(string_agg(abalance::text, ',' ORDER BY aid)) FROM pgbench_accounts WHERE abalance <> 0;
SELECT sum(tbalance) FROM pgbench_tellers; SELECT sum(bbalance) FROM pgbench_branches;
SELECT count(*), sum(delta) FROM pgbench_history;
SELECT sum(r) FROM (SELECT aid * (row_number() OVER (ORDER BY md5(aid::text)) % 1000) AS r FROM pgbench_accounts) x;
"""


def _as_user(work, argv):
    drop = [] if os.getuid() else [work.path("setpriv"), f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                                     "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"]
    return [str(word) for word in [*drop, *argv]]


def _call(work, argv, **options):
    done = subprocess.run(_as_user(work, argv), capture_output=True, text=True, timeout=work.settings.patience, **options)
    if done.returncode:
        raise Failed(f"{argv[0]}: {done.stderr.strip()[-300:]}")
    return done.stdout


class _Database:
    """A server that runs on a socket of its own."""

    def __init__(self, work, folder, start):
        self.work, self.folder, self.programs = work, folder, work.path("postgres")
        shared = work.data // 2 // MIB
        argv = [self.programs / "postgres", "-D", folder / "base", "-c", "listen_addresses=", "-k", folder,
                "-c", f"shared_buffers={shared}MB", "-c", "fsync=off", "-c", "max_wal_size=4GB", "-c", "autovacuum=off",
                "-c", "huge_pages=off", "-c", "dynamic_shared_memory_type=mmap"]
        self.process = start(_as_user(work, argv))
        self.client = ["-h", folder, "-U", "bench", "postgres"]

    def ready(self):
        until = time.monotonic() + self.work.settings.patience
        while True:
            try:
                _call(self.work, [self.programs / "psql", *self.client[:-1], "-d", "postgres", "-c", "SELECT 1"])
                return
            except Failed as error:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise Failed(f"postgres does not start: {error}") from error
                time.sleep(0.1)

    def stop(self):
        """Stops the server by a fast shutdown: it ends the sessions and writes all dirty pages."""
        pid = int((self.folder / "base/postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGINT)
        status = self.process.wait(self.work.settings.patience)
        if status:
            raise Failed(f"postgres: status {status}")


def _own(folder):
    folder.mkdir(exist_ok=True)
    if not os.getuid():
        os.chown(folder, USER, USER)
        # The parent folders belong to another user.
        for above in (folder.parent, folder.parent.parent):
            above.chmod(above.stat().st_mode | 0o011)


def prepare(work):
    folder = work.folder / "postgres"
    _own(folder)
    programs = work.path("postgres")
    _call(work, [programs / "initdb", "-D", folder / "base", "-U", "bench", "-A", "trust", "-N", "--locale=C", "-E", "UTF8"],
          cwd=folder)
    database = _Database(work, folder, lambda argv: subprocess.Popen(
        argv, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        database.ready()
        # A unit of scale is 15 MiB.
        scale = max(2, work.data // 2 // (15 * MIB))
        _call(work, [programs / "pgbench", "-i", "-q", "-s", scale, *database.client], cwd=folder)
        database.stop()
    finally:
        if database.process.poll() is None:
            database.process.kill()
            database.process.wait()


def run(work, run_mode):
    folder = run_mode.folder / "postgres"
    _own(folder)
    subprocess.run(["cp", "-a", work.folder / "postgres/base", folder], check=True)
    programs = work.path("postgres")
    database = _Database(work, folder, lambda argv: run_mode.start(argv, cwd=folder).popen)
    try:
        database.ready()
        begun = time.monotonic()
        _call(work, [programs / "pgbench", "-n", "-c", 4, "-j", 2, "-t", TRANSACTIONS, "--random-seed=17", *database.client],
              cwd=folder)
        mixed = time.monotonic()
        query = QUERY.format(memory=work.data // 2 // MIB)
        said = _call(work, [programs / "psql", "-X", "-q", "-t", "-v", "ON_ERROR_STOP=1", *database.client], input=query, cwd=folder)
        ended = time.monotonic()
        database.stop()
    except (Failed, subprocess.TimeoutExpired) as error:
        raise Failed(f"{error}; {run_mode.errors(0)[-300:]}") from error
    return Outcome(digest(said.encode()), ended - begun, parts={"pgbench": mixed - begun, "queries": ended - mixed})
