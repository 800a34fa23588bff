"""Redis: a fill, a Zipf mix at a fixed rate, the same mix while a forked child saves, a check of every key.

Another Redis reads the dump without a limit. The dump must hold exactly the contents of the first Redis at the fork.
"""

import socket
import threading
import time

from harness.kv import Server
from harness.run_modes import Failed
from harness.work import Outcome

NAME, NEEDS, DRAM, ROOM = "redis", ["redis-server", "kvload"], 1, 8


def prepare(work):
    pass


def _argv(work, run_mode):
    return [work.path("redis-server"), "--port", 0, "--unixsocket", run_mode.folder / "socket", "--dir", run_mode.folder,
            "--save", "", "--appendonly", "no"]


def _ask(server, *words):
    """Sends a command, and returns the answer as text."""
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(server.work.settings.patience)
        link.connect(str(server.socket))
        link.sendall((" ".join(words) + "\r\n").encode())
        answer = b""
        while b"\r\n" not in answer or (answer[:1] == b"$" and not _whole(answer)):
            part = link.recv(65536)
            if not part:
                break
            answer += part
        return answer.decode(errors="replace")


def _whole(answer):
    head, rest = answer.split(b"\r\n", 1)
    return len(rest) >= int(head[1:]) + 2


class _Save(threading.Thread):
    """Polls until a save has ended, and measures its duration, seconds."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.seconds, self.error = server, None, None

    def run(self):
        begun, until = None, time.monotonic() + self.server.work.settings.patience
        try:
            while time.monotonic() < until:
                info = _ask(self.server, "INFO", "persistence")
                if "rdb_bgsave_in_progress:1" in info:
                    begun = begun or time.monotonic()
                # A value of -1 means that no save has ended yet.
                elif "rdb_last_bgsave_time_sec:-1" not in info:
                    if "rdb_last_bgsave_status:ok" not in info:
                        raise Failed("redis: BGSAVE failed; see its log")
                    self.seconds = time.monotonic() - begun if begun else 0.0
                    return
                time.sleep(0.05)
            raise Failed("redis: BGSAVE not done in time")
        except (OSError, Failed) as error:
            self.error = error


def _started(work, run_mode):
    server = Server(work, run_mode, "redis", _argv(work, run_mode))
    server.ready()
    until = time.monotonic() + work.settings.patience
    while not _answers(server):
        if time.monotonic() > until:
            raise Failed("redis does not become ready")
        time.sleep(0.05)
    return server


def _answers(server):
    try:
        return "PONG" in _ask(server, "PING")
    except ConnectionRefusedError:
        # Redis creates the socket before it listens. With little memory there is a delay between the two.
        return False


def _stop(server):
    _ask(server, "SHUTDOWN", "NOSAVE")
    status = server.process.wait(60)
    if status:
        raise Failed(f"redis: status {status}: {server.run_mode.errors(len(server.run_mode.processes) - 1)[-300:]}")


def run(work, run_mode):
    snapshot = run_mode.folder / "snapshot"
    server = _started(work, run_mode)
    fill = server.load("fill")
    mix = server.mix(1)
    saver = _Save(server)
    saver.start()
    saving = server.mix(2, "--save-at", 1, "--snapshot", snapshot)
    saver.join()
    if saver.error:
        raise Failed(str(saver.error))
    verify = server.load("verify")
    _stop(server)
    parts = {"fill": fill["seconds"], "save": saver.seconds, "verify": verify["seconds"]}
    return Outcome(f"{server.keys} keys right", sum(parts.values()), {"mix": mix, "mix while saving": saving}, parts)


def check(work, run_mode):
    """Checks the dump of the last run, in the same folder. The dump is read without a limit, whatever mode has written it."""
    server = _started(work, run_mode)
    size = _ask(server, "DBSIZE").strip()
    if size != f":{server.keys}":
        raise Failed(f"redis: the dump holds {size} keys of {server.keys}")
    server.load("verify", model=run_mode.folder / "snapshot")
    _stop(server)
    (run_mode.folder / "dump.rdb").unlink()
