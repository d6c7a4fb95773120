"""What no report may say, whatever the run."""

import re
from typing import Any

from lightning_gpuprof.model.finding import SEVERITIES, CombinedGain, Finding, Verdict
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.discovery import installed

LEAST_SPEEDUP = {"critical": 1.25, "warning": 1.03, "info": 1.0}
"""20 % and 3 % of a step, from the lower bound of a share: the gain is told from its median."""

MOST_SAVED = 0.99 * (1 + 1e-9)
"""Of a step by all fixes together: 100x is the most that is said, up to the rounding of what is added up."""
CLUES = {rule.id for rule in installed().rules if getattr(rule, "is_clue", False)}


def assert_can_be_trusted(
    findings: tuple[Finding, ...], combined: CombinedGain | None, verdict: Verdict, run: dict[str, Any]
) -> None:
    gains = [(f, f.gain) for f in findings if f.gain is not None]
    vague = [f for f in findings if f.rule in CLUES and f.change is None]
    order = [(SEVERITIES.index(f.severity), -gain.saved_ms_per_step) for f, gain in gains if f not in vague]
    assert order == sorted(order)
    if findings and findings[0] in vague:
        assert not any(f.change is not None and f.severity != "info" for f, _ in gains), findings[0]
    for found, gain in gains:
        assert gain.speedup_max >= LEAST_SPEEDUP[found.severity], found
        assert found.severity == "info" or "No setting helps" not in found.advice, found
    if combined is not None:
        assert combined.saved_ms_per_step <= MOST_SAVED * combined.period_ms
        assert combined.saved_run_ms_per_step <= MOST_SAVED * combined.run_ms_per_step
    for found in findings:
        assert_changes_something(found, run)
    assert_agree(findings)
    shown = re.search(r"(\d[\d.]*) %", verdict.runner_up)
    parts = [said for part in verdict.summary.split("; ") if (said := re.search(r"(\d[\d.]*) %", part))]
    if shown is not None and parts and verdict.kind != "mixed":
        assert float(shown[1]) <= sum(float(said[1]) for said in parts) + 0.5, verdict


def assert_changes_something(found: Finding, run: dict[str, Any]) -> None:
    change = found.change
    if change is None:
        return
    assert change.added or change.removed
    assert change.added != change.removed
    assert (
        any(change.before.get(name) != value for name, value in change.arguments.items()) or change.add + change.remove
    )
    for value in change.arguments.values():
        assert str(value) in found.advice, (found.advice, change)
    assert f"torch.set_num_threads({run.get('torch.num_threads')})" not in change.add, found


def assert_agree(findings: tuple[Finding, ...]) -> None:
    """No argument of a call is told two values."""
    told: dict[tuple[str, str, str], dict[Value, str]] = {}
    for found in findings:
        change = found.change
        for name, value in change.arguments.items() if change is not None else ():
            told.setdefault((change.call, change.inside, name), {})[value] = found.rule
    assert [one for one in told.items() if len(one[1]) > 1] == []
