import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import window_stall
from window_run import ACTIVE, WARMUP, Call, Settings, WindowRun

BEFORE = 10
STEP_MS = 100.0


def run_of(periods_ms: Sequence[float], calls: Sequence[Call] = (), end_ms: float | None = None) -> WindowRun:
    entered = [0, *(round(each * 1e6) for each in np.cumsum(periods_ms))]
    return WindowRun(
        entered_ns=entered,
        finished_ns=None if end_ms is None else entered[-1] + round(end_ms * 1e6),
        calls=list(calls),
        trace_events=7,
        trace_bytes=70,
    )


def planted(stall_ms: float, traced_ms: float, after_ms: Sequence[float]) -> list[float]:
    """Step times of a run: a slow first step, the window with its stall at the end, and what follows."""
    window = [STEP_MS] * (WARMUP - 1) + [traced_ms] * ACTIVE
    return [900.0, *[STEP_MS] * (BEFORE - 1), *window, STEP_MS + stall_ms, *after_ms]


def test_the_stall_is_the_longest_gap_around_the_window_less_a_step() -> None:
    calls = [
        Call(what="stop", begin_ns=0, end_ns=1_200_000_000),
        Call(what="export", begin_ns=1_200_000_000, end_ns=1_700_000_000),
        Call(what="start", begin_ns=0, end_ns=5_000_000),
    ]
    run = run_of(planted(2000, 130, [150, 104, 103, 99, 2500, 100]), calls, end_ms=40)
    stall = window_stall.stall_of(run, BEFORE)
    assert stall.step_ms == pytest.approx(STEP_MS)
    assert stall.stall_ms == pytest.approx(2000)
    assert stall.stop_ms == pytest.approx(1200)
    assert stall.export_ms == pytest.approx(500)
    assert not stall.beside
    assert stall.lost_ms == pytest.approx(2000 + 30 * ACTIVE + 50)
    assert stall.tracing_ms == pytest.approx(30 * ACTIVE)
    assert stall.resume_ms == pytest.approx(150)  # one slow step, then three within 10 %
    assert stall.end_ms == pytest.approx(40)


def test_what_is_done_beside_the_steps_is_told_and_the_slower_steps_are_lost() -> None:
    calls = [Call(what="stop", begin_ns=0, end_ns=1_000_000_000, beside=True)]
    stall = window_stall.stall_of(run_of(planted(20, 130, [150, 140, 101, 99, 100]), calls), BEFORE)
    assert stall.beside
    assert stall.stop_ms == pytest.approx(1000)
    assert stall.stall_ms == pytest.approx(50)  # the step after it is the longest
    assert stall.lost_ms == pytest.approx(30 * ACTIVE + 20 + 50 + 40)
    assert stall.resume_ms == pytest.approx(140)


def test_what_was_not_seen_is_none() -> None:
    stall = window_stall.stall_of(run_of(planted(2000, 130, [200.0] * 6)), BEFORE)
    assert (stall.stop_ms, stall.export_ms, stall.lost_ms, stall.end_ms) == (None, None, None, None)
    assert stall.resume_ms is None  # never back
    assert stall.after_ratio == pytest.approx(2)


def test_a_median_of_rounds_is_none_if_one_round_never_came_back() -> None:
    back = window_stall.stall_of(run_of(planted(500, 130, [STEP_MS] * 6)), BEFORE)
    assert back.resume_ms == 0
    (result,) = window_stall.summarise({"pytorch": [back, replace(back, resume_ms=None)]}, seed=0)
    assert result.resume_ms is None
    assert result.stall_ms.median == pytest.approx(500)


def test_a_stall_is_held_against_ours_of_the_same_rounds() -> None:
    ours = [window_stall.stall_of(run_of(planted(each, 130, [STEP_MS] * 6)), BEFORE) for each in (200, 300)]
    theirs = [window_stall.stall_of(run_of(planted(8 * each, 130, [STEP_MS] * 6)), BEFORE) for each in (200, 300)]
    own, other = window_stall.summarise({"gpuprof": ours, "pytorch-gzip": theirs}, seed=0)
    assert own.times_ours == {}
    assert other.times_ours["gpuprof"].low == pytest.approx(8)
    assert other.times_ours["gpuprof"].high == pytest.approx(8)


@pytest.mark.slow
def test_both_profilers_record_the_same_window_and_the_results_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "window_stall.json"
    tiny = ["--blocks", "8", "--before", "10", "--after", "8", "--rounds", "1", "--json", str(target)]
    assert window_stall.main(["--variants", "gpuprof", "pytorch-gzip", *tiny]) == 0
    ours, theirs = json.loads(target.read_text())["results"]
    assert (ours["variant"], theirs["variant"]) == ("gpuprof", "pytorch-gzip")
    assert set(theirs["times_ours"]) == {"gpuprof"}
    assert theirs["stop_ms"] > 0
    assert theirs["export_ms"] > 0
    # The same five steps of the same network; Lightning's has its own ranges besides.
    assert 0.5 < theirs["trace_events"] / ours["trace_events"] < 2
    assert "pytorch-gzip" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failing_run_is_an_error_that_shows_its_last_words() -> None:
    nobody = Settings(variant="nobody", blocks=1, before=10, after=8, accelerator="cpu", with_end=False)
    with pytest.raises(RuntimeError, match="KeyError: 'nobody'"):
        window_stall.in_a_process(nobody)
