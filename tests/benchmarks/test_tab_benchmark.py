"""The runs that the benchmark of the tab opens: as long as asked for, with the windows of a real fit."""

from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

import patience
import tab

from lightning_gpuprof.sinks import json_report


@pytest.mark.slow
def test_the_long_run_has_its_steps_and_the_windows_of_a_real_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience.begin(monkeypatch.setattr)
    short = tab.record(tmp_path / "short")
    long = tab.lengthen(short, tmp_path / "long", 2_000)
    report = json_report.read(long / "report.json")
    assert report.steps.count == 2_000
    assert [window.start_step for window in report.windows] == [100, 200, 300]
    assert all(window.events for window in report.windows)
    assert not list(tmp_path.rglob("*.pt.trace.json.gz"))
