"""A pytest plugin: the outcome of each test, written at once as a line of JSON, so that no crash loses it.

``LIGHTNING_SUITE_OUTCOMES`` names the folder, in which each module has a file. A test whose outcome is there
is not run again.
"""

import json
import os
import warnings
from pathlib import Path

import pytest

KEPT_CHARACTERS = 6000
"""Of a failure's text: its end, where the error is."""


class Outcomes:
    """Writes when a test begins, and when it has ended how and why."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._failed: dict[str, str] = {}
        self._skipped: set[str] = set()
        self._seconds: dict[str, float] = {}

    def _write(self, test: str, **fields: object) -> None:
        path = self._folder / f"{test.partition('::')[0].replace('/', '+')}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": test, **fields}) + "\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported fails as a whole."""
        if report.failed:
            self._write(report.nodeid, outcome="failed", seconds=0.0, why=report.longreprtext[-KEPT_CHARACTERS:])

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what the folder knows."""
        lines = [line for path in self._folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
        whole = [json.loads(line) for line in lines if line.endswith("}")]  # a kill may tear one
        known = {line["test"] for line in whole if line["outcome"] not in {"began", "warned"}}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in known])
        items[:] = [item for item in items if item.nodeid not in known]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """It begins."""
        self._write(nodeid, outcome="began")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call or teardown has ended."""
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration
        if report.failed:
            self._failed[test] = (self._failed.get(test, "") + report.longreprtext)[-KEPT_CHARACTERS:]
        elif report.skipped:
            self._skipped.add(test)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """All three have: one line."""
        outcome = "failed" if nodeid in self._failed else "skipped" if nodeid in self._skipped else "passed"
        seconds = round(self._seconds.pop(nodeid, 0.0), 3)
        self._write(nodeid, outcome=outcome, seconds=seconds, why=self._failed.pop(nodeid, ""))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        """What the profiler itself warned of; all that it could not do is told so."""
        text = str(warning_message.message)
        if nodeid and text.startswith("gpuprof"):
            self._write(nodeid, outcome="warned", seconds=0.0, why=text)


def pytest_configure(config: pytest.Config) -> None:
    folder = Path(os.environ["LIGHTNING_SUITE_OUTCOMES"])
    config.pluginmanager.register(Outcomes(folder), "lightning-suite-outcomes")
