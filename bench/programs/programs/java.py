"""A Java program whose heap is larger than DRAM, under two collectors."""

import subprocess

from harness.tools import INPUTS
from harness.work import job

MIB = 1 << 20


class Collected:
    """The program under one collector."""

    NEEDS, DRAM, ROOM = ["java", "javac"], 1, 20

    def __init__(self, name, option):
        self.NAME, self._option = name, option

    def prepare(self, work):
        argv = [work.path("javac"), "-d", work.folder, INPUTS / "Heap.java"]
        subprocess.run(argv, check=True, capture_output=True)

    def run(self, work, run_mode):
        heap = [self._option, "-Xms16m", f"-Xmx{work.data * 3 // 2 // MIB}m"]
        # A collector's behaviour depends on the number of processors that it sees.
        argv = [work.path("java"), *heap, "-XX:ActiveProcessorCount=2", "-cp", work.folder, "Heap", work.data]
        return job(run_mode, argv, work.settings.patience)


SERIAL = Collected("java-serial", "-XX:+UseSerialGC")
G1 = Collected("java-g1", "-XX:+UseG1GC")
