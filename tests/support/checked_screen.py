"""What holds of every first screen, and of the report of every run that tests make."""

import re

import pytest
from trusted import assert_can_be_trusted

from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules.base import CRITICAL_RATIO, WARNING_RATIO
from lightning_gpuprof.sinks.first_screen import FirstScreen, first_screen, likely_saved_ms
from lightning_gpuprof.sinks.step_bars import SLOW_STEPS
from lightning_gpuprof.sinks.views import overview


def checked(report: Report) -> Report:
    """The report of a run, which can be trusted and whose first screen says the same."""
    assert_can_be_trusted(report.findings, report.combined, report.verdict, report.run)
    screen = check(report)
    gains = [one for one in screen.opportunities if one.saved_ms is not None]
    assert (screen.severity is None) is not any(one.severity != "info" or one.saved_ms for one in screen.opportunities)
    if gains and screen.opportunities[0] in gains:
        assert screen.after is not None
    hints = screen.opportunities
    unjudged = ("Too short to judge", "Still warming up", "Part of the run was not recorded")
    judged = not screen.headline.startswith(unjudged)
    assert judged or screen.reliability.kind != "ok"
    if not hints and judged:
        sure = screen.reliability.kind == "ok"
        none = "No potential speedup above 3 %." if screen.ended else "Healthy: no potential speedup above 3 %."
        assert screen.headline.startswith(none if sure else "No finding, but")
    elif screen.severity is None and judged:
        said = f"Hint: {hints[0].title}." if len(hints) == 1 else f"{len(hints)} hints, gain unknown."
        assert screen.headline.endswith(said)
    return report


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
    said = re.search(r" of each ([\d.,]+ \w+) step", screen.sentence)
    if screen.today is not None and screen.scale == "step" and said is not None:
        assert said[1] == millis(screen.today.ms), "the sentence is about the step of the bar"
    if report.verdict.kind == "compute-bound" and screen.severity is None:
        assert re.search(r"\d m?s\b", screen.sentence) is None, "the bar has the phases' times"
    assert re.search(r"[\d.,]+ ms per step", screen.sentence) is None, "of which step, the mean or the median one?"
    if screen.after is not None:
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
            named = {claim.phase, claim.part, SLOW_STEPS} & {now.key for now in screen.today.segments}
            named_ms = sum(now.ms for now in screen.today.segments if now.key in named)
            assert sum(lost_ms.get(key or "", 0.0) for key in named) == pytest.approx(min(screen.saved_ms, named_ms))
        of_the_bar = next(one for one in screen.opportunities if one.saved_ms is not None)
        assert of_the_bar.speedup == pytest.approx(screen.speedup), "the list says what the headline says"
        if report.findings[0].expected is not None:
            assert of_the_bar.saved_ms == pytest.approx(screen.saved_ms), "the list says what the bar says"
        assert screen.wall_after_s is not None
        assert 0 <= screen.wall_after_s <= screen.wall_s
    check_bounds(report, screen)
    for finding in report.findings:
        if (expected := finding.expected) is not None:
            assert 0 <= expected.lower_ms <= expected.step_ms <= expected.upper_ms
            assert 0 < expected.step_ms < expected.whole_ms
        if finding.gain is not None:
            times = finding.gain.speedup_max if finding.expected is None else finding.expected.speedup
            assert times >= 1 / (1 - WARNING_RATIO) - 1e-9 or finding.severity == "info"
            assert times >= 1 / (1 - CRITICAL_RATIO) - 1e-9 or finding.severity != "critical"
    return screen


def check_bounds(report: Report, screen: FirstScreen) -> None:
    """Nowhere is an upper bound below what a change is expected to bring."""
    gained = [finding for finding in report.findings if finding.gain is not None]
    tile = re.search(r"≤ ([\d,.]+)x", re.sub(r"<.*?>", "", overview.tiles(report)))
    shown = [one for one in screen.opportunities if one.speedup is not None]
    for one, finding in zip(shown, gained, strict=True):
        assert one.speedup is not None
        assert finding.most_speedup is not None
        if screen.scale == "step":
            assert one.speedup <= finding.most_speedup * 1.001, "as on the page, so in the list"
        if finding.expected is not None:
            assert finding.expected.speedup_range[1] <= finding.most_speedup
        assert finding.most_speedup <= float(tile[1].replace(",", "")) * 1.01
        if finding.expected is not None and finding.rule in (said := bounds_of_the_method(report)):
            assert finding.expected.speedup_range[1] <= said[finding.rule] * 1.01
    if (combined := report.combined) is not None:
        for finding in gained:
            most_ms = likely_saved_ms(finding) or 0.0
            assert combined.saved_run_ms_per_step >= min(most_ms, 0.99 * combined.run_ms_per_step) * 0.999
            if finding.claim.is_in_step:
                assert combined.saved_ms_per_step >= min(most_ms, 0.99 * combined.period_ms) * 0.999


def bounds_of_the_method(report: Report) -> dict[str, float]:
    """What the method says that each of the first findings gains at most."""
    levels = () if report.method is None else report.method.levels
    lines = [line for level in levels if level.name == "actions" for line in level.lines]
    found = (re.match(r"([\w-]+): up to ([\d.]+)x", line) for line in lines)
    return {one[1]: float(one[2]) for one in found if one is not None}
