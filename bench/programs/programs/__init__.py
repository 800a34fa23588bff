"""The programs. Each has

- NAME, and NEEDS: the tools that it takes;
- DRAM: its DRAM over `--dram`: less than 1 where a program cannot use as much in reasonable time, and for suites of tests;
- ROOM: MiB in both groups for what is not anonymous memory: code, page cache that has to be written back;
- prepare(work): makes its input once, without a limit;
- run(work, run_mode): runs it, and returns an Outcome.
"""

from . import (cpython, fio, gcc, git, java, libraries, make, matrix, memcached, memcached_suite, postgres, redis,
               redis_suite, sort, sqlite, stress)

ALL = [redis, memcached, sqlite, postgres, sort, matrix, *libraries.ALL, java.SERIAL, java.G1, gcc, make, git, fio, stress,
       redis_suite, memcached_suite, cpython]
