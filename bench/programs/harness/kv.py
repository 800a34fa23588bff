"""A key-value server under way, and its load: see inputs/kvload.c."""

import json
import subprocess
import time

from .ways import Failed

#: Bytes that a key takes in Redis and in memcached, about.
PER_KEY = 1200


class Server:
    """A server on a socket of its own, and the client that knows what it must hold."""

    def __init__(self, work, way, protocol, argv):
        self.work, self.way, self.protocol = work, way, protocol
        self.socket = way.folder / "socket"
        self.socket.unlink(missing_ok=True)
        self.process = way.start(argv, env=work.tools.environment)
        self.keys = work.data // PER_KEY
        self.model = way.folder / "model"

    def ready(self, limit=60):
        until = time.monotonic() + limit
        while not self.socket.exists():
            if not self.process.alive() or time.monotonic() > until:
                said = self.way.errors(len(self.way.processes) - 1)[-300:]
                raise Failed(f"{self.process.argv[0]} does not start: {said}")
            time.sleep(0.02)

    def load(self, mode, *options, model=None):
        """Runs the client; what it measured. Fails if any answer was wrong."""
        argv = [self.work.path("kvload"), mode, "--protocol", self.protocol, "--socket", self.socket,
                "--keys", self.keys, "--model", model or self.model, *options]
        try:
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True,
                                  timeout=self.work.settings.patience)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{self.protocol} {mode}: not done after {error.timeout:.0f} s") from error
        if done.returncode:
            raise Failed(f"{self.protocol} {mode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def mix(self, seed, *options):
        settings = self.work.settings
        return self.load("mix", "--rate", settings.rate, "--seconds", settings.seconds, "--seed", seed, *options)
