"""The programs. Each has

- NAME, and NEEDS: the tools that it takes;
- DIVIDE: what the DRAM is divided by for it, where a program cannot use four times as much in reasonable time;
- BESIDE: 1, or 2 where it needs twice as much room beside its DRAM: much code, or page cache that has to be written back;
- prepare(work): makes its input once, without a limit;
- run(work, way): runs it, and returns an Outcome.
"""

from . import gcc, java, matrix, memcached, redis, sort, sqlite, stress

ALL = [redis, memcached, sqlite, sort, matrix, gcc, java.SERIAL, java.G1, stress]
