"""What holds of every first screen."""

from __future__ import annotations

import pytest

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules.base import CRITICAL_RATIO, WARNING_RATIO
from lightning_gpuprof.sinks.first_screen import SLOW_STEPS, FirstScreen, first_screen


def check(report: Report) -> FirstScreen:
    """What holds of every first screen."""
    screen = first_screen(report)
    assert screen.headline.strip()
    assert screen.reliability.words
    assert all(one.title for one in screen.opportunities)
    for bar in (screen.today, screen.after):
        if bar is not None:
            assert all(segment.ms >= 0 for segment in bar.segments)
            assert sum(segment.ms for segment in bar.segments) == pytest.approx(bar.ms)
    if screen.after is not None:
        assert screen.today is not None
        assert screen.saved_ms is not None
        assert screen.speedup is not None
        assert 0 < screen.saved_ms <= screen.today.ms
        assert screen.after.ms == pytest.approx(screen.today.ms - screen.saved_ms)
        assert [s.key for s in screen.after.segments] == [s.key for s in screen.today.segments]
        for now, then in zip(screen.today.segments, screen.after.segments, strict=True):
            assert then.ms <= now.ms
        lost_ms = {
            now.key: now.ms - then.ms
            for now, then in zip(screen.today.segments, screen.after.segments, strict=True)
            if then.ms < now.ms
        }
        assert sum(lost_ms.values()) == pytest.approx(screen.saved_ms)
        if not screen.cause:  # then the bar has it by name, and it is what gets shorter
            claim = next(finding.explains for finding in report.findings if finding.gain is not None)
            assert claim is not None
            named = {claim.phase, claim.part, SLOW_STEPS} & {now.key for now in screen.today.segments}
            named_ms = sum(now.ms for now in screen.today.segments if now.key in named)
            assert sum(lost_ms.get(key or "", 0.0) for key in named) == pytest.approx(min(screen.saved_ms, named_ms))
        of_the_bar = next(one for one in screen.opportunities if one.saved_ms is not None)
        assert of_the_bar.speedup == pytest.approx(screen.speedup), "the list says what the headline says"
        if report.findings[0].expected is not None:
            assert of_the_bar.saved_ms == pytest.approx(screen.saved_ms), "the list says what the bar says"
        assert screen.wall_after_s is not None
        assert 0 <= screen.wall_after_s <= screen.wall_s
    for finding in report.findings:
        if (expected := finding.expected) is not None:
            assert 0 <= expected.lower_ms <= expected.step_ms <= expected.upper_ms
            assert 0 < expected.step_ms < expected.whole_ms
        if finding.gain is not None and finding.gain.speedup_max < 1 / (1 - WARNING_RATIO) - 1e-9:
            assert finding.severity == "info"
        if finding.gain is not None and finding.gain.speedup_max < 1 / (1 - CRITICAL_RATIO) - 1e-9:
            assert finding.severity != "critical"
    return screen
