"""Adds to findings since when they hold, from the parts of a run that differ in speed."""

from collections.abc import Sequence

import msgspec

from lightning_gpuprof.model.evenness import SpeedChange
from lightning_gpuprof.rules.base import Finding, Metrics, millis
from lightning_gpuprof.rules.steps.phase_change import PhaseChange
from lightning_gpuprof.rules.steps.uneven import elapsed_words


def with_onset(findings: Sequence[Finding], metrics: Metrics) -> tuple[Finding, ...]:
    """The first finding about the phase that changed says when that was, unless it is the one about the change.

    Args:
        findings: In the order of the report.
        metrics: Metrics of the run.
    """
    lasting = PhaseChange().lasting(metrics)
    if lasting is None or not PhaseChange().is_certain(lasting):
        return tuple(findings)
    change = lasting.change
    first = next((finding for finding in findings if finding.explains and finding.explains.phase == change.phase), None)
    if first is None or first.rule == PhaseChange.id:
        return tuple(findings)
    dated = msgspec.structs.replace(first, summary=f"{first.summary} {_words(change, metrics)}")
    return tuple(dated if finding is first else finding for finding in findings)


def _words(change: SpeedChange, metrics: Metrics) -> str:
    """As "Since batch 121 (3.10 s into the run), data_wait takes 8.30 ms instead of 4.10 ms"."""
    before, after = sorted((change.slow, change.fast), key=lambda part: part.from_batch)
    now_ms, then_ms = after.phases_ms.get(change.phase, 0.0), before.phases_ms.get(change.phase, 0.0)
    lasts = after is metrics.evenness.speed_levels[-1]
    when = f"Since batch {after.from_batch}" if lasts else f"From batch {after.from_batch} to {after.to_batch}"
    took = "takes" if lasts else "took"
    return f"{when}{elapsed_words(after)}, {change.phase} {took} {millis(now_ms)} instead of {millis(then_ms)}."
