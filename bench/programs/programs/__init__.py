"""The programs. Each program has

- NAME, and NEEDS: the names of the tools that it uses;
- DRAM: its DRAM over `--dram`: less than 1 for test suites, and for programs that would take too long to use all of it;
- ROOM: memory of both groups for code and for page cache under write-back, MiB;
- prepare(work): makes the program's input once, without a limit;
- run(work, run_mode): runs the program, and returns an Outcome.
"""

from . import (cpython, fio, gcc, git, java, libraries, make, matrix, memcached, memcached_suite, postgres, redis,
               redis_suite, sort, sqlite, stress)

ALL = [redis, memcached, sqlite, postgres, sort, matrix, *libraries.ALL, java.SERIAL, java.G1, gcc, make, git, fio, stress,
       redis_suite, memcached_suite, cpython]
