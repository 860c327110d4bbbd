"""Show where the time of a test run goes: ``make test PYTEST_ARGS="-p devtools.run_times"``.

A pytest plugin. After the run it prints, by folder and by file, how many tests there were, how long
they took and how much of that was computing, and how long the fixtures took that several tests
share (servers, JVMs). What is not computing is waiting: two tests that wait can overlap. The
computing is that of the worker and of the processes that it started and saw end.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from time import perf_counter
from typing import Any

import pytest

_FILES = 25
_PREFIX = "shared fixture: "


@dataclass
class _Sum:
    """Times of several tests, or starts of one fixture, in seconds."""

    count: int = 0
    took_s: float = 0.0
    computed_s: float = 0.0


def _computed_s() -> float:
    return sum(os.times()[:4])


class _Meter:
    """In the process that runs tests: notes on each test's report what its phases computed."""

    def __init__(self) -> None:
        self._before = _computed_s()
        self._starts: list[tuple[str, float]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = _computed_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        now = _computed_s()
        # The report of a phase holds what was noted in it and before it.
        item.user_properties.append(("computed_s", now - self._before))
        item.user_properties += self._starts
        self._before, self._starts = now, []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        began = perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                name = f"{_PREFIX}{fixturedef.argname}"
                self._starts.append((name, perf_counter() - began))


class _Table:
    """In the process that prints: adds up the reports."""

    def __init__(self) -> None:
        self._files: dict[str, _Sum] = defaultdict(_Sum)
        self._fixtures: dict[str, _Sum] = defaultdict(_Sum)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = self._files[report.nodeid.partition("::")[0]]
        file.took_s += report.duration
        if report.when != "teardown":
            return
        file.count += 1
        for name, value in report.user_properties:
            if name == "computed_s":
                file.computed_s += float(str(value))
            elif name.startswith(_PREFIX):
                fixture = self._fixtures[name.removeprefix(_PREFIX)]
                fixture.count += 1
                fixture.took_s += float(str(value))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        terminalreporter.section("where the time went, in seconds of all workers together")
        folders: dict[str, _Sum] = defaultdict(_Sum)
        for name, file in self._files.items():
            for folder in ("/".join(PurePosixPath(name).parts[:2]), "all"):
                folders[folder].count += file.count
                folders[folder].took_s += file.took_s
                folders[folder].computed_s += file.computed_s
        for line in _lines("folder", folders):
            write(line)
        write("")
        for line in list(_lines("file", self._files))[: _FILES + 1]:
            write(line)
        write("")
        fixtures = sorted(self._fixtures.items(), key=lambda named: -named[1].took_s)
        write(f"{'shared fixture':60}{'starts':>7}{'took':>9}")
        for name, fixture in fixtures[:_FILES]:
            write(f"{name:60}{fixture.count:7}{fixture.took_s:9.1f}")


def _lines(heading: str, sums: dict[str, _Sum]) -> Iterable[str]:
    yield f"{heading:60}{'tests':>7}{'took':>9}{'computed':>10}{'waited':>9}"
    for name, one in sorted(sums.items(), key=lambda named: -named[1].took_s):
        waited_s = max(0.0, one.took_s - one.computed_s)
        yield f"{name:60}{one.count:7}{one.took_s:9.1f}{one.computed_s:10.1f}{waited_s:9.1f}"


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and print where the terminal is."""
    under_xdist = hasattr(config, "workerinput")
    if under_xdist or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(_Meter(), "run-times-meter")
    if not under_xdist:
        config.pluginmanager.register(_Table(), "run-times-table")
