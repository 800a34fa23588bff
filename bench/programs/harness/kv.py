"""A running key-value server and its client, inputs/kvload.c."""

import json
import subprocess
import time

from .run_modes import Failed

#: Approximate memory of a key in Redis and memcached, bytes.
PER_KEY = 1200


class Server:
    """A server on a socket of its own, and the client that verifies its contents."""

    def __init__(self, work, run_mode, protocol, argv):
        self.work, self.run_mode, self.protocol = work, run_mode, protocol
        self.socket = run_mode.folder / "socket"
        self.socket.unlink(missing_ok=True)
        self.process = run_mode.start(argv, env=work.tools.environment)
        self.keys = work.data // PER_KEY
        self.model = run_mode.folder / "model"

    def ready(self, limit=60):
        until = time.monotonic() + limit
        while not self.socket.exists():
            if not self.process.alive() or time.monotonic() > until:
                said = self.run_mode.errors(len(self.run_mode.processes) - 1)[-300:]
                raise Failed(f"{self.process.argv[0]} does not start: {said}")
            time.sleep(0.02)

    def load(self, mode, *options, model=None):
        """Runs the client and returns its measurements. Fails on any wrong answer."""
        argv = [self.work.path("kvload"), mode, "--protocol", self.protocol, "--socket", self.socket,
                "--keys", self.keys, "--model", model or self.model, *options]
        try:
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                                  timeout=self.work.settings.patience)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.protocol} {mode}: no end within {error.timeout:.0f} s") from error
        if done.returncode:
            raise Failed(f"{self.protocol} {mode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def mix(self, seed, *options):
        settings = self.work.settings
        return self.load("mix", "--rate", settings.rate, "--seconds", settings.seconds, "--seed", seed, *options)
