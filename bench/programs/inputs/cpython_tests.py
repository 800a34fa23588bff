"""Runs test modules of CPython, each in a process of its own, and writes a line for each test with its result and its name.

    cpython_tests.py RESULTS SECONDS MODULE...

The module `multiprocessing_fork` stands for the tests of multiprocessing that start processes by fork. A module that takes
longer than SECONDS is killed, and its line has the result `hung`.
"""

import importlib
import os
import signal
import subprocess
import sys
import types
import unittest

#: Parts of the names of tests that are left out: tests that wait for ever on a machine with incomplete vsock support, and
#: tests that send signals or wait for a signal for half a minute.
LEFT_OUT = ("VSOCK", "StressTest", "test_siginterrupt_off")


def chosen(tests):
    """Yields the tests of a suite, except those that are left out."""
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield unittest.TestSuite(chosen(test))
        elif not any(part in test.id() for part in LEFT_OUT):
            yield test


class Result(unittest.TestResult):
    """Writes every result immediately, so that earlier results survive a crash or a hang."""

    def __init__(self, out):
        super().__init__()
        self._out, self._bad = out, {}

    def _write(self, result, test):
        os.write(self._out, f"{result} {test.id()}\n".encode())

    def startTest(self, test):
        super().startTest(test)
        self._write("begun", test)

    def stopTest(self, test):
        super().stopTest(test)
        self._write(self._bad.get(test.id(), "ok"), test)

    def _note(self, result, test):
        if isinstance(test, unittest.TestCase):
            self._bad[test.id()] = result
        else:
            self._write(result, test)  # The setup of a class or a module failed.

    def addError(self, test, err):
        super().addError(test, err)
        self._note("failed", test)
        print(f"{test.id()}: {self.errors[-1][1]}", file=sys.stderr)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note("failed", test)
        print(f"{test.id()}: {self.failures[-1][1]}", file=sys.stderr)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note("skipped", test)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._note("expected", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note("unexpected", test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._bad[test.id()] = "failed"


def one(name, out):
    if name == "multiprocessing_fork":
        module = types.ModuleType(name)
        sys.modules[name] = module
        module.__dict__["__name__"] = name
        importlib.import_module("test._test_multiprocessing").install_tests_in_module_dict(module.__dict__, "fork")
        # Tests with managers and threads would take another minute without forking more often.
        for key in [key for key in module.__dict__ if key.startswith(("WithManager", "WithThreads"))]:
            del module.__dict__[key]
    else:
        module = importlib.import_module(f"test.{name}")
    set_up = getattr(module, "setUpModule", None)
    tests = unittest.TestSuite(chosen(unittest.defaultTestLoader.loadTestsFromModule(module)))
    # The suite calls setUpModule only for the module that the classes name. The generated classes name another module.
    if set_up and name == "multiprocessing_fork":
        set_up()
    tests.run(Result(out))
    if name == "multiprocessing_fork":
        module.tearDownModule()


def main():
    if sys.argv[1] == "--one":
        return one(sys.argv[2], int(sys.argv[3]))
    results, seconds, modules = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    with open(results, "wb") as out:
        for name in modules:
            child = subprocess.Popen([sys.executable, __file__, "--one", name, str(out.fileno())],
                                     pass_fds=[out.fileno()], start_new_session=True)
            try:
                status = f"status {child.wait(seconds)}"
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                status = "hung"
            os.write(out.fileno(), f"{status.replace(' ', '-')} module.{name}\n".encode())


main()
