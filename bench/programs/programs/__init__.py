"""The programs. Each has

- NAME, and NEEDS: the tools that it takes;
- DIVIDE: what the DRAM is divided by for it, where a program cannot use four times as much in reasonable time, and for suites of tests;
- BESIDE: 1, or more where it needs that many times as much room beside its DRAM: much code, or page cache that has to be written back;
- prepare(work): makes its input once, without a limit;
- run(work, way): runs it, and returns an Outcome.
"""

from . import (cpython, fio, gcc, git, java, libraries, make, matrix, memcached, memcached_suite, postgres, redis,
               redis_suite, sort, sqlite, stress)

ALL = [redis, memcached, sqlite, postgres, sort, matrix, *libraries.ALL, java.SERIAL, java.G1, gcc, make, git, fio, stress,
       redis_suite, memcached_suite, cpython]
