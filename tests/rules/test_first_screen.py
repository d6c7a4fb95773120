"""The first screen of whatever the rules can say: its bars add up, its gains are possible, its words are there."""

import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml
from checked_screen import check, check_phases
from example_runs import example_run
from faulty_runs import FAULTS, everything_is_wrong_on_a_gpu
from feeding_builder import starved
from metrics_builder import build
from msgspec.structs import replace

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.finding import Finding, Gain, NotEvaluated
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import seconds
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, OWN_NAME, LedgerRow, LineRow, PhaseRow, Report
from lightning_gpuprof.pipeline import report_of
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import BaseRule
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.sinks import json_report, wording
from lightning_gpuprof.sinks.first_screen import first_screen, proof
from lightning_gpuprof.sinks.fix import Fix, fix_of
from lightning_gpuprof.sinks.gains import faster, likely_saved_ms
from lightning_gpuprof.sinks.html_page import page
from lightning_gpuprof.sinks.step_bars import OTHER, Segment, StepBar, after_fix
from lightning_gpuprof.sinks.views.findings import findings
from lightning_gpuprof.sinks.views.first import render

RULES = cast("list[BaseRule]", list(discover(entry_points=()).rules))
RUNS: dict[str, Metrics] = {**FAULTS, "everything on a GPU": everything_is_wrong_on_a_gpu()}


@pytest.mark.parametrize("run", RUNS)
def test_of_several_faults_at_once(run: str) -> None:
    check_phases(check(report_of(RUNS[run])))


def test_every_rule_is_counted_once() -> None:
    report = report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None))
    screen = first_screen(report)
    rules = [f.rule for f in report.findings] + [*screen.checks.passed]
    rules += [one.rule for one in (*screen.checks.not_made, *screen.checks.not_applicable)]
    assert sorted(set(rules)) == sorted(rule.id for rule in RULES)
    assert len(set(rules)) == len(rules)
    assert f"{len(screen.checks.passed)} checks passed" in screen.checks.words


def test_a_report_without_the_checks_reads_and_counts_what_it_has() -> None:
    whole = json_report.encode(report_of(build()))
    old = {name: value for name, value in msgspec.json.decode(whole).items() if name != "checks"}
    read = msgspec.json.decode(msgspec.json.encode(old), type=Report)
    assert first_screen(read).checks.passed == ()


def test_of_a_step_that_waits_for_the_gil_each_phase_keeps_its_cpu_time() -> None:
    finding = about(claims.INTERPRETER)
    times_ms = {"data_wait": 40.0, "forward": 60.0, "backward": 40.0, "loop": 20.0}
    cpu_ms = {"data_wait": 1.0, "forward": 10.0, "backward": 5.0, "loop": 5.0}
    phases = [
        PhaseRow(phase=phase, median_ms=ms, p95_ms=None, total_s=1.0, share=0.25, cpu_ms=cpu_ms[phase])
        for phase, ms in cast("dict[Phase, float]", times_ms).items()
    ]
    today = StepBar(ms=160.0, segments=tuple(Segment(key=key, label=key, ms=ms) for key, ms in times_ms.items()))
    after = after_fix(today, finding, claimed_ms=100.0, saved_ms=100.0, phases=phases)
    assert [segment.ms for segment in after.segments] == pytest.approx([40.0, 10.0, 5.0, 5.0])
    less = after_fix(today, finding, claimed_ms=50.0, saved_ms=50.0, phases=phases)
    assert [segment.ms for segment in less.segments] == pytest.approx([40.0, 35.0, 22.5, 12.5])
    more = after_fix(today, finding, claimed_ms=120.0, saved_ms=120.0, phases=phases)
    assert sum(segment.ms for segment in more.segments) == pytest.approx(more.ms)
    assert all(segment.ms > 0 for segment in more.segments)


def test_the_wait_shrinks_where_batches_come_late() -> None:
    screen = first_screen(report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)))
    assert screen.today is not None
    assert screen.after is not None
    assert ms(screen.today, "data_wait") - ms(screen.after, "data_wait") == pytest.approx(screen.saved_ms)
    assert ms(screen.today, "forward") == ms(screen.after, "forward")
    assert "loaded in the main process" in screen.headline
    assert "faster" in screen.headline
    assert any("num_workers=" in line for line in screen.fix.added)


@pytest.mark.parametrize(("setup_s", "said"), [(1.0, False), (200.0, True)])
def test_where_the_whole_run_gains_far_less_than_a_step_the_headline_says_both(setup_s: float, said: bool) -> None:
    report = report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None))
    wall = report.wall
    parts = {**wall.parts, "setup": setup_s}
    longer = msgspec.structs.replace(wall, total_s=wall.total_s + setup_s - wall.parts["setup"], parts=parts)
    screen = first_screen(msgspec.structs.replace(report, wall=longer))
    assert "Steps could be about 2.1x faster" in screen.headline
    assert screen.wall_after_s is not None
    assert (", the whole run 1.1x faster." in screen.headline) is said
    assert 1 - screen.wall_after_s / screen.wall_s == pytest.approx(0.096 if said else 0.505, abs=0.01)


def test_what_is_outside_of_the_steps_is_on_the_scale_of_the_run() -> None:
    screen = first_screen(report_of(build(validation=(4, 30.0))))
    assert screen.scale == "run"
    assert screen.today is not None
    assert screen.after is not None
    assert ms(screen.today, "validation") > ms(screen.after, "validation")
    assert ms(screen.today, "forward") == ms(screen.after, "forward")
    assert screen.bar_name == "whole run"
    assert screen.gain.startswith(f"{screen.whole_run.split(' at best')[0]}"), "the bars are the run, in its own time"
    assert screen.opportunities[0].saved == f"{seconds(screen.wall_s - screen.wall_after_s)} per run"


def test_a_list_of_run_and_steps_says_which_gets_faster() -> None:
    of_step = report_of(build(times_ms={"data_wait": 30.0}, num_workers=0, worker_cpus=None)).findings[0]
    report = report_of(build(validation=(4, 30.0)))
    of_run = report.findings[0]

    def words(*findings: Finding) -> list[str]:
        screen = first_screen(msgspec.structs.replace(report, findings=findings))
        return [re.sub(r"[\d.]+x faster", "N", one.faster) for one in screen.opportunities]

    assert words(of_run, of_step) == ["about N", "steps about N"]
    assert words(of_step, of_run) == ["about N", "the run about N"]
    assert words(of_run) == ["about N"]


def test_of_slow_steps_the_bar_is_the_mean_step_and_its_phases() -> None:
    report = report_of(RUNS["stalls"])
    screen = check(report)
    assert (screen.scale, screen.bar_name) == ("step", "mean step")
    assert screen.today is not None
    assert screen.today.ms == report.steps.period_ms.mean


def test_more_than_the_fix_itself_ends_is_taken_from_other_phases() -> None:
    """What is left of the phase stays in its bar: the callback still works in every 50th step."""
    times_ms = {"forward": 10.0, "callbacks": 20.0, "loop": 10.0}
    today = StepBar(ms=40.0, segments=tuple(Segment(key=key, label=key, ms=ms) for key, ms in times_ms.items()))
    after = after_fix(today, about(claims.CALLBACKS), claimed_ms=19.6, saved_ms=21.6)
    assert [segment.ms for segment in after.segments] == pytest.approx([9.0, 0.4, 9.0])
    less = after_fix(today, about(claims.CALLBACKS), claimed_ms=19.6, saved_ms=15.0)
    assert [segment.ms for segment in less.segments] == pytest.approx([10.0, 5.0, 10.0])


def test_the_wait_for_a_late_rank_is_drawn_where_ranks_meet() -> None:
    times_ms = {"forward": 21.0, "backward": 65.0, "sync": 3.0}
    today = StepBar(ms=89.0, segments=tuple(Segment(key=key, label=key, ms=ms) for key, ms in times_ms.items()))
    after = after_fix(today, about(claims.COMMUNICATION), claimed_ms=60.0, saved_ms=60.0)
    assert after.segments[0].ms == 21.0
    assert after.ms == pytest.approx(sum(one.ms for one in after.segments)) == 29.0


def test_a_place_is_named_once() -> None:
    report = fixed({})
    line = LineRow(place="train.py:36 take", phase="forward", total_s=1.0, share=0.5, looks=9, code="time.sleep(1)")
    finding = msgspec.structs.replace(
        report.findings[0],
        subject="train.py:36 take",
        summary="It is blocked in take() (train.py:36).",
        advice="Move the call in take() (train.py:36) out of forward.",
        change=None,
    )
    screen = first_screen(msgspec.structs.replace(report, findings=(finding,), lines=(line,)))
    assert screen.fix.where == "train.py:36"
    assert (screen.sentence, screen.fix.advice) == (
        "It is blocked in take().",
        "Move the call in take() out of forward.",
    )
    unknown = first_screen(msgspec.structs.replace(report, findings=(finding,)))
    assert (unknown.sentence, unknown.fix.advice) == (finding.summary, "Move the call in take() out of forward.")


def test_the_run_has_the_same_name_in_the_header_and_in_the_command() -> None:
    screen = first_screen(fixed({}), Path("/logs/runs/base/gpuprof"))
    assert screen.meta[0] == "…/runs/base"
    assert screen.proof == "gpuprof compare /logs/runs/base <folder of the new run>"
    html = render(screen)
    assert 'data-copy="gpuprof compare /logs/runs/base "' in html


def test_no_tick_stands_before_checks_that_could_not_be_run() -> None:
    screen = first_screen(report_of(build()))
    assert bool(screen.checks.not_made) is ("<summary>✓ " not in render(screen))
    some = msgspec.structs.replace(screen.checks, not_made=(NotEvaluated(rule="a", why="b"),))
    assert "<summary>✓ " not in render(msgspec.structs.replace(screen, checks=some))


def test_what_is_outside_of_the_steps_is_drawn_and_named_as_such() -> None:
    screen = first_screen(report_of(build(checkpoint=(20, 6.0), validation=(4, 9.0))))
    assert screen.scale == "run"
    sides = [segment.is_outside for segment in screen.today.segments]
    assert sides == sorted(sides), "after the parts of a step"
    outside = {segment.key: segment.label for segment in screen.today.segments if segment.is_outside}
    assert outside == {
        "validation": "validation",
        "checkpoint": "checkpoint",
    }
    html = render(screen)
    assert html.count('class=outside style="background:var(--checkpoint)') == 2
    assert '<span style="background:var(--forward)' in html
    assert "<li>Whole run:</li>" in html


def test_the_profiler_s_own_part_of_a_whole_run_is_named_as_such() -> None:
    metrics = build(checkpoint=(20, 6.0), validation=(4, 9.0))
    wall = replace(metrics.wall, parts={**metrics.wall.parts, "teardown": 2.0})
    own = LedgerRow(
        part="teardown", phase="callbacks", name=OWN_NAME, hook="teardown", total_s=1.9, share=0.05, count=1
    )
    screen = first_screen(report_of(replace(metrics, wall=wall, ledger=(own,))))
    assert screen.outside == "2.00 s of teardown (1.90 s of it the profiler's)"
    assert first_screen(report_of(replace(metrics, wall=wall))).outside == ""


def test_no_part_of_a_step_is_drawn_as_outside_of_it() -> None:
    screen = first_screen(report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)))
    assert not any(segment.is_outside for segment in screen.today.segments)
    assert "outside" not in render(screen).partition("<ul")[0]
    assert screen.bar_name == "median step"
    assert "<li>Median step:</li>" in render(screen)


@pytest.mark.parametrize(("rank", "name"), [(None, "rank 0"), (0, "rank 0"), (3, "rank 3")])
def test_the_bar_of_a_run_of_several_ranks_says_whose_it_is(rank: int | None, name: str) -> None:
    ranks = {"world_size": 8} | ({} if rank is None else {"rank": rank})
    screen = first_screen(report_of(build(run=ranks, times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)))
    assert screen.bar_name == f"median step of {name}"
    assert f"<li>Median step of {name}:</li>" in render(screen)


def test_a_gain_of_the_mean_step_is_the_same_share_of_the_median_one() -> None:
    """Steps that get slower: what the mean loses is not all taken from a median that never had it."""
    example = next(known for known in RULES if known.id == "step-drift").examples[0]
    report = report_of(example_run(**example.changes))
    screen, (finding, *_) = first_screen(report), report.findings
    assert screen.scale == "step"
    assert screen.speedup == pytest.approx(finding.gain.speedup_max, rel=0.01)
    assert f"up to {finding.gain.speedup_max:.1f}x" in screen.headline


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ("sync-points", "GPU idle after host syncs"),
        ("h2d-pageable", "copies of the batch"),
        ("launch-bound", "GPU waits for launches"),
        ("cpu-contention", "waiting for a CPU"),
        ("single-process-loading", ""),  # the bar says "waiting for data"
    ],
)
def test_a_cause_that_is_a_part_of_several_phases_is_drawn_in_them(rule: str, cause: str) -> None:
    example = next(known for known in RULES if known.id == rule).examples[0]
    screen = check(report_of(example_run(**example.changes)))
    assert screen.cause == cause
    assert screen.today is not None
    drawn = [float(ms) for ms in re.findall(r'class="lost" style="[^"]*" data-ms="([^"]+)"', render(screen))]
    assert sum(drawn) == pytest.approx((screen.saved_ms or 0.0) if cause else 0.0, rel=1e-4)
    assert (f"saved by the fix: {cause} " in render(screen)) is bool(cause)


def about(claim: Claim) -> Finding:
    return msgspec.structs.replace(fixed({}).findings[0], explains=claim)


def ms(bar: StepBar, key: str) -> float:
    return sum(segment.ms for segment in bar.segments if segment.key == key)


def test_a_healthy_run_has_nothing_to_gain_and_says_what_bounds_it() -> None:
    screen = first_screen(report_of(build()))
    assert screen.headline == "Healthy: no potential speedup above 3 %."
    assert "ound" in screen.sentence
    assert screen.fix is None
    assert screen.after is None
    assert screen.reliability.kind == "ok"


def test_few_steps_are_too_little_and_other_programs_make_it_conditional() -> None:
    few = first_screen(report_of(build(steady=4)))
    assert few.reliability.kind == "too little"
    assert few.headline.startswith("Too short to judge ")
    assert few.reliability.words == f"4 of the {MIN_STEADY_STEPS} steady steps needed"
    live = first_screen(report_of(build(steady=4, run={"status": "unfinished"})))
    assert live.reliability.words == few.reliability.words
    assert "steady" not in live.sentence, "said once"
    assert live.headline.startswith("Still warming up: ")
    assert live.ended == ()
    assert "it was killed" in live.sentence
    found = report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)).findings
    short = msgspec.structs.replace(report_of(build(steady=4, run={"status": "unfinished"})), findings=found)
    assert "was killed or is" in " ".join(first_screen(short).ended)
    assert "Too short" not in render(live)
    report = report_of(build())
    crowded = msgspec.structs.replace(report, validity=msgspec.structs.replace(report.validity, conditional=True))
    assert first_screen(crowded).reliability.kind == "conditional"
    assert "quiet machine" in first_screen(crowded).headline
    assert "Healthy" not in first_screen(crowded).headline


def test_beside_other_programs_a_hint_does_not_lead() -> None:
    report = report_of(build(times_ms={"data_wait": 2.5, "forward": 4.0, "backward": 5.0}))
    (hint,) = report.findings
    assert hint.severity == "info"
    assert hint.gain is not None
    assert first_screen(report).severity == "info"
    crowded = msgspec.structs.replace(report, validity=msgspec.structs.replace(report.validity, conditional=True))
    screen = check(crowded)
    assert screen.severity is None
    assert screen.headline.startswith("Nothing certain, as other programs ran: re-run on a quiet machine. Hint: ")
    assert [one.saved_ms for one in screen.opportunities] == [likely_saved_ms(hint)]
    assert wording.next_step(crowded).startswith("Re-run on a quiet machine")


@pytest.mark.parametrize(("half", "kind"), [(0.09, "ok"), (0.11, "conditional")])
def test_a_wide_interval_of_the_median_is_noisy(half: float, kind: str) -> None:
    report = report_of(build())
    median = report.steps.period_ms.median
    ends = (median * (1 - half), median * (1 + half))
    noisy = msgspec.structs.replace(report.steps, period_median_interval_ms=ends)
    screen = first_screen(msgspec.structs.replace(report, steps=noisy))
    assert screen.reliability.kind == kind
    assert ("noisy" in screen.reliability.words) is (kind == "conditional")
    assert ("Healthy" in screen.headline) is (kind == "ok")
    assert f"median step ±{100 * half:.0f} %" in screen.reliability.words


def test_timed_lines_are_the_reason_that_is_given_for_less_reliable_numbers() -> None:
    line = TimedLine(line=1, code="x = 1", hits=1, total_s=0.5)
    timed = (FunctionTimes(name="f", file="a.py", lines=(line,)),)
    screen = first_screen(msgspec.structs.replace(report_of(build()), line_times=timed))
    assert screen.reliability.kind == "conditional"
    assert screen.headline == "No finding, but lines= slows the functions that it times: train without it."


@pytest.mark.parametrize(
    ("others", "why"),
    [
        (0.83, "less reliable: noisy, as other programs used 0.83 CPUs ("),
        (0.1, "less reliable: noisy ("),
        (None, "less reliable: noisy ("),
    ],
)
def test_the_likely_reason_of_noise_is_in_the_same_line(others: float | None, why: str) -> None:
    level = None if others is None else Level(mean=others, max=others)
    report = report_of(build())
    noisy = msgspec.structs.replace(report.steps, period_median_interval_ms=(1.0, 1e3))
    host = HostUse(machine=MachineUse(cpu_others_cpus=level))
    screen = first_screen(msgspec.structs.replace(report, steps=noisy, host=host))
    assert screen.reliability.words.startswith(why)


@pytest.mark.parametrize(("run", "kind"), [({}, "ok"), ({"device.type": "cuda"}, "conditional")])
def test_nothing_is_reliable_beside_many_checks_that_could_not_be_made(run: dict[str, str], kind: str) -> None:
    screen = first_screen(report_of(build(run=run)))  # of a GPU, nothing but the host's times
    assert screen.reliability.kind == kind
    left, of = len(screen.checks.not_made), len(screen.checks.not_made) + len(screen.checks.passed)
    said = f"{left} of {of} checks could not be run"
    assert (said in screen.reliability.words) is (kind == "conditional")
    assert screen.headline == (
        "Healthy: no potential speedup above 3 %." if kind == "ok" else f"No finding, but {said}."
    )
    assert ('class="first good"' in render(screen)) is (kind == "ok")


def test_a_window_that_nobody_asked_for_is_not_missing() -> None:
    gpu = {"device.type": "cuda"}
    wanted, unwanted = (
        first_screen(report_of(build(run=run))).checks for run in (gpu, {**gpu, "gpuprof.untraced": True})
    )
    untraced = {one.rule for one in wanted.not_made if "trace window" in one.why}
    assert len(untraced) > 20
    assert not [one for one in unwanted.not_made if "trace window" in one.why]
    unasked = {one.rule: one.why for one in unwanted.not_applicable}
    assert untraced == {rule for rule, why in unasked.items() if why == "no trace window was asked for: windows=[]"}
    assert [one.rule for one in wanted.not_applicable] == [rule for rule in unasked if rule not in untraced]


def test_a_run_on_a_cpu_lacks_no_signal_of_a_gpu() -> None:
    screen = first_screen(report_of(build()))
    assert {one.why for one in screen.checks.not_applicable} >= {"the model runs on the CPU"}
    assert not screen.checks.misses_many
    assert "GPU" not in " ".join(one.why for one in screen.checks.not_made)


BUILT = "DataLoader(..., num_workers=2, persistent_workers=True)"


@pytest.mark.parametrize(
    ("call", "removed", "added"),
    [
        (
            "DataLoader(data, batch_size=32)",
            ("DataLoader(data, batch_size=32)",),
            ("DataLoader(data, batch_size=32, num_workers=2, persistent_workers=True)",),
        ),
        (
            "DataLoader(data, num_workers=self.workers)",
            ("num_workers=self.workers,  # 0 in this run",),
            ("num_workers=2,", "persistent_workers=True,"),
        ),
        *(
            (call, None, (BUILT,))
            for call in ("DataLoader(data, **options)", "DataLoader(", "loader", "x" * 300 + "\x00")
        ),
    ],
)
def test_the_change_is_shown_in_the_users_own_call_unless_that_cannot_be_changed_by_text(
    call: str, removed: tuple[str, ...] | None, added: tuple[str, ...]
) -> None:
    fix = first_screen(fixed({"loader.built_at": "train.py:42", "loader.built_by": call})).fix
    assert fix.added == added
    assert removed is None or (fix.where, fix.removed) == ("train.py:42", removed)


def test_a_call_with_hidden_text_is_shown_but_not_copied() -> None:
    run = {"loader.built_at": "train.py:42", "loader.built_by": "DataLoader(Files(token='***'))"}
    fix = first_screen(fixed(run)).fix
    assert fix.added == ("DataLoader(Files(token='***'), num_workers=2, persistent_workers=True)",)
    assert fix.copied == ""


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (Change(call="DataLoader", arguments={"num_workers": 2}), "train.py:42"),
        (Change(call="DataLoader", arguments={"num_workers": 2}, inside="val_dataloader"), "train.py:43"),
        (Change(call="Trainer", arguments={"benchmark": True}), "train.py:50"),
        (Change(call="DDPStrategy", arguments={"static_graph": True}), ""),
    ],
)
def test_a_change_stands_where_the_user_makes_what_it_is_of(change: Change, where: str) -> None:
    built = {"loader": 42, "val_loader": 43, "trainer": 50}
    report = fixed({f"{name}.built_at": f"train.py:{line}" for name, line in built.items()})
    changed = msgspec.structs.replace(report.findings[0], change=change)
    assert first_screen(msgspec.structs.replace(report, findings=(changed,))).fix.where == where


@pytest.mark.parametrize(
    ("change", "diff"),
    [
        (
            Change(call="DataLoader", arguments={"num_workers": 1}, remove=("torch.set_num_threads(2)",), add=("x()",)),
            ("- DataLoader(data)", "- torch.set_num_threads(2)", "+ DataLoader(data, num_workers=1)", "+ x()"),
        ),
        (Change(call="DataLoader", remove=("a()",), add=("b()",)), ("- a()", "+ b()")),
    ],
)
def test_lines_beside_a_call_are_shown_with_the_user_s_own_call(change: Change, diff: tuple[str, ...]) -> None:
    run = {"loader.built_at": "train.py:42", "loader.built_by": "DataLoader(data)"}
    fix = fix_of(finding_with(change), run)
    assert tuple(f"{mark} {line}" for mark, line in fix.diff) == diff


def fixed(run: dict[str, Any]) -> Report:
    report = report_of(build())
    finding = Finding(
        rule="single-process-loading",
        severity="critical",
        subject="DataLoader",
        summary="Slow.",
        advice="Use workers.",
        evidence=(),
        gain=Gain(saved_ms_per_step=1.0, speedup_max=1.1),
        explains=Claim(resource="batches", name="data_wait", phase="data_wait"),
        change=Change(
            call="DataLoader",
            arguments={"num_workers": 2, "persistent_workers": True},
            before={"num_workers": 0},
        ),
    )
    return msgspec.structs.replace(report, findings=(finding,), run={**report.run, **run})


def test_advice_without_a_change_is_told_in_words() -> None:
    report = fixed({})
    finding = msgspec.structs.replace(report.findings[0], change=None, advice="Write fewer checkpoints: save(every=5).")
    fix = first_screen(msgspec.structs.replace(report, findings=(finding,))).fix
    assert fix == Fix(advice=finding.advice)


@pytest.mark.parametrize(("file", "heading"), [("", " before trainer.fit"), ("net.py", " in <code>net.py</code>")])
def test_where_lines_go_is_said(file: str, heading: str) -> None:
    change = Change(add=("model = torch.compile(model)",), place="before trainer.fit", file=file)
    report = msgspec.structs.replace(fixed({}), findings=(finding_with(change),))
    assert f"<h2>Change this{heading}</h2>" in render(first_screen(report))


def test_a_value_that_was_not_known_is_not_shown_as_an_empty_call() -> None:
    fix = fix_of(finding_with(Change(call="Trainer", arguments={"benchmark": True})), {})
    assert fix.diff == (("+", "Trainer(..., benchmark=True)"),)


CLI = {
    "trainer.callbacks": "SaveConfigCallback, ModelCheckpoint",
    "trainer.config_file": "configs/digits.yaml",
    "trainer.config_data": "data.init_args.num_workers, data.init_args.batch_size",
}


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        (
            Change(call="Trainer", arguments={"log_every_n_steps": 50}, before={"log_every_n_steps": 1}),
            ["  trainer:", "-   log_every_n_steps: 1", "+   log_every_n_steps: 50"],
        ),
        (
            Change(call="Trainer", arguments={"precision": "16-mixed", "benchmark": True, "val_check_interval": None}),
            ["  trainer:", '+   precision: "16-mixed"', "+   benchmark: true", "+   val_check_interval: null"],
        ),
        (
            Change(call="DataLoader", arguments={"num_workers": 2}, before={"num_workers": 0}),
            ["  data:", "    init_args:", "-     num_workers: 0", "+     num_workers: 2"],
        ),
        (
            Change(call="ModelCheckpoint", arguments={"every_n_epochs": 5}),
            [
                "  trainer:",
                "    callbacks:",
                "    - class_path: ModelCheckpoint",
                "      init_args:",
                "+       every_n_epochs: 5",
            ],
        ),
    ],
    ids=["trainer", "kinds of values", "data module", "callback"],
)
def test_a_run_of_a_configuration_is_changed_there(change: Change, lines: list[str]) -> None:
    fix = fix_of(finding_with(change), CLI)
    assert [f"{mark} {line}" for mark, line in fix.diff] == lines
    assert fix.where == "configs/digits.yaml"
    written = yaml.safe_load("\n".join((*fix.inside, *fix.added)))
    while not isinstance(written, dict) or not set(change.arguments) <= set(written):
        written = written[0]["init_args"] if isinstance(written, list) else next(iter(written.values()))
    assert written == change.arguments


@pytest.mark.parametrize(
    "change",
    [
        Change(call="DataLoader", arguments={"num_workers": 2, "prefetch_factor": 4}),
        Change(call="torch.optim.AdamW", arguments={"fused": True}),
        Change(add=("model = torch.compile(model)",)),
    ],
    ids=["an argument that the data module has not", "no part of the configuration", "a line of code"],
)
def test_what_the_configuration_does_not_have_is_changed_in_python(change: Change) -> None:
    fix = fix_of(finding_with(change), CLI)
    assert fix.inside == ()
    assert fix.added == change.added


def test_the_reason_of_a_number_and_what_else_the_change_does_are_said() -> None:
    change = Change(call="ModelCheckpoint", arguments={"every_n_epochs": 71}, before={"every_n_epochs": 1})
    finding = msgspec.structs.replace(finding_with(change), advice="Save less. Why 71: that leaves 1 % of the step.")
    fix = fix_of(finding, {})
    assert fix.why == "Why 71: that leaves 1 % of the step."
    assert fix.effect == "A crash loses more work."
    stream = msgspec.structs.replace(
        finding, advice="Why 2: two. Shard the iterable dataset first, or it is all there."
    )
    assert fix_of(stream, {}).effect == "Shard the iterable dataset first, or it is all there."
    order = Change(call="DataLoader", arguments={"in_order": False}, before={"in_order": True})
    assert fix_of(finding_with(order), {}).effect == "Batches arrive in a different order in each run."


def test_a_setting_of_the_profiler_is_no_fix() -> None:
    advice = (
        "Find what changed at batch 100 in Items. Two windows show the difference: GpuProfiler(windows=[(52, 54)])."
    )
    finding = msgspec.structs.replace(finding_with(None), advice=advice)
    assert fix_of(finding, {}).advice == "Find what changed at batch 100 in Items."
    only = msgspec.structs.replace(finding, advice="Trace the first steps: GpuProfiler(windows=[(1, 3)])")
    assert fix_of(only, {}).advice == only.advice


@pytest.mark.parametrize(("claimed_ms", "said"), [(20.0, True), (30.0, False)])
def test_what_is_saved_beyond_the_cause_is_explained(claimed_ms: float, said: bool) -> None:
    report = report_of(build(times_ms={"data_wait": 30.0}, num_workers=0, worker_cpus=None))
    screen = msgspec.structs.replace(first_screen(report), saved_ms=30.0, claimed_ms=claimed_ms)
    assert ("as the rest of the step then runs faster" in render(screen)) is said
    assert "warm caches" not in render(screen), "nobody has measured the reason"


def test_a_finding_without_code_is_explained_by_two_sentences() -> None:
    report = fixed({})
    summary = "From batch 100 on, steps take 53.2 ms instead of 24.3 ms. 98 % of it is in data_wait. More."
    finding = msgspec.structs.replace(report.findings[0], change=None, summary=summary)
    screen = first_screen(msgspec.structs.replace(report, findings=(finding,)))
    assert screen.sentence == summary.removesuffix(" More.")


def finding_with(change: Change | None) -> Finding:
    return msgspec.structs.replace(fixed({}).findings[0], change=change)


def test_the_proof_names_the_run_and_the_next_one() -> None:
    assert proof(Path("logs/version_3/gpuprof")) == "gpuprof compare logs/version_3 logs/version_4"
    assert proof(Path("runs/base")) == "gpuprof compare runs/base <folder of the new run>"
    assert proof(None) == "gpuprof compare <folder of this run> <folder of the new run>"


def test_small_phases_are_one_segment() -> None:
    screen = first_screen(report_of(build()))
    assert len(screen.today.segments) <= 8
    assert screen.today.segments[-1].key == OTHER


def test_more_workers_than_cpus_are_a_bound_and_the_reason_says_so() -> None:
    many = first_screen(report_of(starved(items_ms=39.0, workers=1, usable_cpus=2.0, host=HostUse(usable_cpus=2.0))))
    assert "Steps could be up to " in many.headline
    assert many.whole_run.endswith(" at best")
    assert many.opportunities[0].faster.startswith("up to ")
    assert "; on 2 CPUs this holds because loading mostly waits, as long as the storage keeps up." in many.fix.why
    enough = first_screen(
        report_of(starved(items_ms=39.0, workers=1, usable_cpus=64.0, host=HostUse(usable_cpus=64.0)))
    )
    assert "Steps could be about " in enough.headline
    assert "holds only" not in enough.fix.why


@pytest.mark.parametrize(("rest_ms", "said"), [(8.0, True), (3.0, False)])
def test_a_bound_that_is_just_what_the_first_fix_leaves_is_no_gain_of_its_own(rest_ms: float, said: bool) -> None:
    report = fixed({})
    gains = (Gain(saved_ms_per_step=12.0, speedup_max=2.5), Gain(saved_ms_per_step=rest_ms, speedup_max=1.2))
    first = msgspec.structs.replace(report.findings[0], gain=gains[0])
    other = msgspec.structs.replace(first, rule="other", gain=gains[1], explains=None, change=None)
    html = render(first_screen(msgspec.structs.replace(report, findings=(first, other))))
    assert ("no more than the rest that 1 leaves" in html) is said


def test_the_run_saves_no_more_of_its_steps_than_a_step_of_itself() -> None:
    """The median step is twice the mean one."""
    report = report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None))
    train_s, setup_s = report.steps.count * report.steps.period_ms.median / 2e3, 1.0
    wall = msgspec.structs.replace(
        report.wall, total_s=train_s + setup_s, parts={**report.wall.parts, "train": train_s, "setup": setup_s}
    )
    screen = first_screen(msgspec.structs.replace(report, wall=wall))
    left_s = train_s * screen.after.ms / screen.today.ms
    assert screen.wall_after_s == pytest.approx(setup_s + left_s)
    assert screen.bridge.endswith(f": {numbers.percent(1 - train_s / screen.wall_s)} of the run is outside these steps")


def test_why_the_run_gains_less_than_a_step_is_said() -> None:
    screen = first_screen(report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None)))
    rest = numbers.percent(1 - min(screen.steps * screen.today.ms / 1e3, screen.steps_s) / screen.wall_s)
    of_run = faster(screen.wall_s / screen.wall_after_s)
    assert screen.bridge == f"{of_run}: {rest} of the run is outside these steps"
    assert screen.bridge in render(screen).replace("\xa0", " ")


def test_what_a_finding_saves_between_steps_is_told_per_run() -> None:
    report = report_of(build(validation=(4, 30.0)))
    assert re.search(r"\u2212[\d.]+ s per run</span></summary>", findings(report))


def test_a_single_finding_has_a_link_in_place_of_a_list_of_one() -> None:
    report = report_of(build(times_ms={"data_wait": 30.0}, num_workers=0, worker_cpus=None))
    alone = msgspec.structs.replace(report, findings=report.findings[:1])
    assert "All opportunities" not in render(first_screen(alone))
    assert '<a href="#finding-1">The evidence</a>' in render(first_screen(alone))
    other = msgspec.structs.replace(report.findings[0], rule="other-rule", explains=None)
    assert "All opportunities" in render(
        first_screen(msgspec.structs.replace(report, findings=(alone.findings[0], other)))
    )


def test_lines_that_stand_for_the_user_s_own_are_not_copied() -> None:
    known = Fix(removed=("DataLoader(..., num_workers=0)",), added=("DataLoader(..., num_workers=2, pin_memory=True)",))
    assert known.copied == "num_workers=2, pin_memory=True"
    assert msgspec.structs.replace(known, is_pattern=True).copied == ""


@pytest.mark.slow
@pytest.mark.parametrize("run", ["all", "everything on a GPU"])
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)], ids=["laptop", "telephone"])
def test_many_faults_at_once_fit_into_one_view(browser: Any, tmp_path: Path, run: str, width: int, height: int) -> None:
    body = [f'<main id="main">{render(first_screen(report_of(RUNS[run])))}</main>']
    (tmp_path / "page.html").write_text(page("run", body))
    opened = browser.new_page(viewport={"width": width, "height": height})
    opened.goto((tmp_path / "page.html").as_uri())
    box = opened.locator(".first").bounding_box()
    assert box["y"] + box["height"] <= height


@pytest.mark.slow
def test_bars_have_labels_on_a_telephone(browser: Any, tmp_path: Path) -> None:
    report = report_of(build(times_ms={"data_wait": 60.0}, num_workers=0, worker_cpus=None))
    (tmp_path / "page.html").write_text(page("run", [f'<main id="main">{render(first_screen(report))}</main>']))
    opened = browser.new_page(viewport={"width": 390, "height": 844})
    opened.goto((tmp_path / "page.html").as_uri())
    label = opened.locator(".row2 .stack b").first
    assert label.is_visible()
    assert label.inner_text().startswith("waiting for data ")
    opened.close()
