"""What holds of every first screen, and of the report of every run that tests make."""

import io
import re
from html import unescape
from pathlib import Path

import pytest
from trusted import assert_can_be_trusted

from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.rules.base import CRITICAL_RATIO, WARNING_RATIO
from lightning_gpuprof.sinks import method_tables
from lightning_gpuprof.sinks.first_screen import FirstScreen, first_screen, title_of
from lightning_gpuprof.sinks.gains import faster, likely_saved_ms, scale_of
from lightning_gpuprof.sinks.terminal_screen import print_screen
from lightning_gpuprof.sinks.views import overview
from lightning_gpuprof.sinks.views.first import render


def checked(report: Report) -> Report:
    """The report of a run, which can be trusted and whose first screen says the same."""
    assert_can_be_trusted(report.findings, report.combined, report.verdict, report.run)
    screen = check(report)
    check_phases(screen)
    gains = [one for one in screen.opportunities if one.saved_ms is not None]
    hints_lead = not report.validity.conditional
    assert (screen.severity is None) is not any(
        one.severity != "info" or (one.saved_ms and hints_lead) for one in screen.opportunities
    )
    if gains and screen.opportunities[0] in gains and screen.severity is not None:
        assert screen.after is not None
    hints = screen.opportunities
    unjudged = ("Too short to judge", "Still warming up", "Part of the run was not recorded")
    judged = not screen.headline.startswith(unjudged)
    assert judged or screen.reliability.kind != "ok"
    if not hints and judged:
        sure = screen.reliability.kind == "ok"
        none = "No potential speedup above 3 %." if screen.ended else "Healthy: no potential speedup above 3 %."
        assert screen.headline.startswith(none if sure else ("No finding, but", "No finding, as"))
    elif screen.severity is None and judged:
        unknown = "" if gains else ", gain unknown"
        said = f"Hint: {hints[0].title}." if len(hints) == 1 else f"{len(hints)} hints{unknown}."
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
    check_one_number(screen)
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
        assert screen.claimed_ms is not None
        if not screen.cause:  # then the bar has it by name, and that gets shorter by what the fix itself ends
            finding = next(one for one in report.findings if one.gain is not None)
            named = {finding.claim.phase, finding.claim.part, finding.phase}
            named_ms = sum(now.ms for now in screen.today.segments if now.key in named)
            left_ms = sum(then.ms for then in screen.after.segments if then.key in named)
            ended_ms = min(screen.saved_ms, screen.claimed_ms, named_ms)
            assert named_ms - left_ms >= ended_ms - 1e-6
            others_ms = screen.today.ms - named_ms
            if screen.saved_ms - ended_ms < others_ms - 1e-6:
                assert named_ms - left_ms == pytest.approx(ended_ms), "the rest of it stays in the bar"
        of_the_bar = next(one for one in screen.opportunities if one.saved_ms is not None)
        assert of_the_bar.speedup == pytest.approx(screen.speedup), "the list says what the headline says"
        if report.findings[0].expected is not None:
            assert of_the_bar.saved_ms == pytest.approx(screen.saved_ms), "the list says what the bar says"
        assert screen.wall_after_s is not None
        assert 0 <= screen.wall_after_s <= screen.wall_s
    check_bounds(report, screen)
    check_names(report, screen)
    check_same_time(report, screen)
    for finding in report.findings:
        if (expected := finding.expected) is not None:
            assert 0 <= expected.lower_ms <= expected.step_ms <= expected.upper_ms
            assert 0 < expected.step_ms < expected.whole_ms
        if finding.gain is not None:
            times = finding.gain.speedup_max if finding.expected is None else finding.expected.speedup
            assert times >= 1 / (1 - WARNING_RATIO) - 1e-9 or finding.severity == "info"
            assert times >= 1 / (1 - CRITICAL_RATIO) - 1e-9 or finding.severity != "critical"
    return screen


TOLD = (
    (r"^Logging takes ([\d.,]+ m?s)", "logging"),
    (r"^Waiting for the next batch takes ([\d.,]+ m?s)", "data_wait"),
    (r"^Loading the batch in the main process takes ([\d.,]+ m?s)", "data_wait"),
    (r" step waits ([\d.,]+ m?s) for its batch", "data_wait"),
    (r" and waits ([\d.,]+ m?s) of that for data", "data_wait"),
    (r"^Clearing gradients takes ([\d.,]+ m?s)", "zero_grad"),
)
"""What sentences say of a whole phase."""


def check_phases(screen: FirstScreen) -> None:
    """A phase has one time on the screen of a run that was measured."""
    times = {} if screen.today is None else {segment.key: segment.ms for segment in screen.today.segments}
    for words, phase in TOLD:
        said = re.search(words, screen.sentence)
        if said is not None and screen.scale == "step":
            assert said[1] == millis(times[phase]), f"{phase} has one time: {screen.sentence}"


def check_one_number(screen: FirstScreen) -> None:
    """A step and a speed-up have one value each, whichever words say it."""
    if screen.today is None:
        return
    for words in (r" of each ([\d.,]+ m?s) step", r"\beach ([\d.,]+ m?s) step", r"\ba step takes ([\d.,]+ m?s)"):
        said = re.search(words, screen.sentence)
        if said is not None and screen.scale == "step":
            assert said[1] == millis(screen.today.ms), "the sentence is about the step of the bar"
    if screen.after is None or screen.wall_after_s is None or screen.speedup is None:
        return
    ends = (screen.today.ms, screen.after.ms) if screen.scale == "step" else (screen.wall_s, screen.wall_after_s)
    shown = [float(f"{one:.3g}") for one in ends]
    assert screen.speedup == pytest.approx(shown[0] / max(shown[1], 0.01 * shown[0]))
    assert faster(screen.speedup) in screen.headline
    if screen.scale == "run":
        assert screen.today.ms / screen.after.ms == pytest.approx(screen.wall_s / screen.wall_after_s)
    assert screen.whole_run.endswith(" at best") is ("up to" in screen.headline)
    assert ("-> about " in screen.whole_run) is ("about" in screen.headline)


def check_bounds(report: Report, screen: FirstScreen) -> None:
    """Nowhere is an upper bound below what a change is expected to bring."""
    gained = [finding for finding in report.findings if finding.gain is not None]
    shown = [one for one in screen.opportunities if one.speedup is not None]
    for one, finding in zip(shown, gained, strict=True):
        assert one.speedup is not None
        assert finding.most_speedup is not None
        if screen.scale == "step":
            assert one.speedup <= finding.most_speedup * 1.01, "as on the page, so in the list"
        if finding.expected is not None:
            assert finding.expected.speedup_range[1] <= finding.most_speedup
        if finding.expected is not None and finding.rule in (said := bounds_of_the_method(report)):
            assert finding.expected.speedup_range[1] <= said[finding.rule] * 1.01
    if (combined := report.combined) is not None:
        for finding in gained:
            most_ms = likely_saved_ms(finding) or 0.0
            assert combined.saved_run_ms_per_step >= min(most_ms, 0.99 * combined.run_ms_per_step) * 0.999
            if finding.claim.is_in_step:
                assert combined.saved_ms_per_step >= min(most_ms, 0.99 * combined.period_ms) * 0.999


def check_same_time(report: Report, screen: FirstScreen) -> None:
    """Page and terminal say in the same words which findings are about the first one's time."""
    alike = [one for one in report.findings if one.explains is not None and one.explains == report.findings[0].explains]
    gained = [one for one in alike if one.gain is not None]
    named = [one for one in alike[1:] if one.gain is None or one is gained[0]] if gained else []
    named = named if screen.severity is not None else []
    assert bool(screen.same_time) is bool(named)
    for one in named[:1]:
        assert title_of(one) in screen.same_time
    stream = io.StringIO()
    print_screen(report, Path("run"), stream)
    for text in (re.sub(r"<.*?>", "", unescape(render(screen))), stream.getvalue()):
        assert screen.same_time in " ".join(text.split())
        assert ("Also, same cause" in text) is bool(named)


def check_names(report: Report, screen: FirstScreen) -> None:
    """What the first change gains and what all gain together are named for what they are, in words of their own."""
    tiles = re.sub(r"<.*?>", " ", overview.tiles(report))
    if screen.speedup is not None:
        of = "the whole run" if screen.scale == "run" else "a step"
        assert re.search(rf"first change\s+{screen.likely.sure} {re.escape(faster(screen.speedup))}\s+{of}", tiles)
    gained = sum(finding.gain is not None for finding in report.findings)
    together = [text for label, text in method_tables.lines(report) if label == "all changes together"]
    assert len(together) == (report.method is not None and report.combined is not None and gained > 1)
    levels = () if report.method is None else report.method.levels
    together += [line for level in levels for line in level.lines if "all changes together" in line]
    for text in together:
        assert "whole run" not in text, "the whole run is what the first screen says of the first change"
        assert "the run without setup and teardown up to" in text
    for one, finding in zip(screen.opportunities, report.findings, strict=True):
        if one.speedup is not None and scale_of(finding.explains) == "run":
            after_s = max(0.01 * screen.wall_s, screen.wall_s - (one.saved_ms or 0.0) * screen.steps / 1e3)
            assert one.speedup == pytest.approx(screen.wall_s / after_s, rel=0.02), "all of the whole run"


def bounds_of_the_method(report: Report) -> dict[str, float]:
    """What the method says that each of the first findings gains at most."""
    levels = () if report.method is None else report.method.levels
    lines = [line for level in levels if level.name == "actions" for line in level.lines]
    found = (re.match(r"([\w-]+): up to ([\d.]+)x", line) for line in lines)
    return {one[1]: float(one[2]) for one in found if one is not None}
