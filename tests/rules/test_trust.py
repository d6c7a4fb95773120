"""What no report may say, whatever the run: over all computed truth cases; test_examples.py has the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checked_screen import check
from trusted import assert_can_be_trusted
from truths.cases import CASES
from truths.gpu_runs import Simulated
from truths.recorded import Recorded

from lightning_gpuprof.pipeline import load_report

COMPUTED = [case for case in CASES if isinstance(case.source, Simulated | Recorded)]


FAST = COMPUTED[::8]
"""The others are made in the tests marked slow: each is a whole training that is computed, traced and analysed."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case in FAST else pytest.mark.slow) for case in COMPUTED],
)
def test_a_report_of_a_computed_run_can_be_trusted(case: Any, tmp_path: Path) -> None:
    report = load_report(case.source(tmp_path, 3).parent)
    assert_can_be_trusted(report.findings, report.combined, report.verdict, report.run)
    screen = check(report)
    gains = [one for one in screen.opportunities if one.saved_ms is not None]
    assert (screen.severity is None) is not any(one.severity != "info" or one.saved_ms for one in screen.opportunities)
    if gains and screen.opportunities[0] in gains:
        assert screen.after is not None
    if not screen.opportunities:
        sure = screen.reliability.kind == "ok"
        assert screen.headline.startswith("Healthy: no fix would gain more than 3 %." if sure else "No finding, but")
    elif screen.severity is None:
        hints = screen.opportunities
        said = f"Hint: {hints[0].title}." if len(hints) == 1 else f"{len(hints)} hints without a known gain."
        assert screen.headline.endswith(said)
