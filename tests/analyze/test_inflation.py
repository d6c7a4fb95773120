"""By how much tracing inflates the times in a window, from steps whose periods are known."""

import numpy as np
import pytest
from sample_journals import header as sample_header

from lightning_gpuprof.analyze.journal_columns import CpuColumns, Journal, StepColumns
from lightning_gpuprof.analyze.windows_cost import with_inflation
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED, Slot, WindowRecord
from lightning_gpuprof.model.window import WindowFacts

MS = 1_000_000


def ratio(
    period_ms: list[float],
    flags: list[int],
    *,
    steps: tuple[int, int],
    own_ms: float = 0,
    reason: str = "",
    validating: tuple[int, ...] = (),
) -> object:
    """The ratio of a window over the steps of these indices; the first of them begins with the profiler's own time."""
    period = np.asarray(np.asarray(period_ms) * MS, np.int64)
    own = np.zeros(len(period), np.int64)
    own[steps[0]] = own_ms * MS
    period += own
    start = np.r_[0, np.cumsum(period)[:-1]].astype(np.int64)
    n = np.arange(len(period), dtype=np.int64)
    opened = int(start[steps[0]] + own[steps[0]])
    closed = int(start[steps[1]] + period[steps[1]]) + 1000
    validation = np.zeros(len(period), np.int64)
    validation[list(validating)] = 1
    journal = Journal(
        header=sample_header(),
        slots=[Slot(id=0, action="validation", phase="validation")],
        steps=StepColumns(
            batch=n,
            start_ns=start,
            period_ns=period,
            first_global_step=0,
            stepped=n * 0,
            epoch=n * 0,
            flags=np.asarray(flags, np.int64),
            charged={0: validation},
        ),
        cpu=CpuColumns(batch=n[:0], charged={}),
        windows=[WindowRecord(start_step=0, stop_step=2, start_ns=opened, stop_ns=closed, reason=reason)],
    )
    steady = journal.steps.flags == 0
    (facts,) = with_inflation([WindowFacts(start_step=0, stop_step=2)], journal, steady, own)
    return facts.inflation_ratio


TRACED = [0] * 10 + [PROFILED] * 6 + [DISTURBED] * 4
"""Two steps of warm-up, three in the window, and the one that begins with its closing."""


@pytest.mark.parametrize("own_ms", [0, 100])
def test_the_steps_in_the_window_are_held_against_the_untraced_without_opening_it(own_ms: float) -> None:
    period = [10.0] * 10 + [30, 30, 18, 18, 19, 500] + [40.0] * 4
    assert ratio(period, TRACED, steps=(12, 14), own_ms=own_ms) == pytest.approx(1.8)


@pytest.mark.parametrize("lead", [0, 40])
def test_in_a_run_of_two_speed_levels_a_window_is_held_against_the_steps_around_it(lead: int) -> None:
    window = [75, 75, 50, 50, 50, 500]
    fast, slow = [10.0] * 200, [25.0] * lead
    flags = [0] * (200 + lead) + [PROFILED] * 6 + [DISTURBED] * 4 + [0] * 30
    steps = (202 + lead, 204 + lead)
    assert ratio([*fast, *slow, *window, *[25.0] * 34], flags, steps=steps) == pytest.approx(
        50 / (25 if lead else 17.5)
    )
    assert ratio([*slow, *window, *[25.0] * 34, *fast], flags[200:] + [0] * 200, steps=(lead + 2, lead + 4)) == 2


def test_a_window_on_slow_steps_is_held_against_the_steps_before_it() -> None:
    period = [10.0] * 5 + [25.0] * 5 + [75, 75, 50, 50, 50, 500] + [25.0] * 4
    assert ratio(period, TRACED, steps=(12, 14), reason="slow step: period 25 ms against 10 ms") == pytest.approx(2)


def test_an_epochs_edge_in_the_window_is_no_inflation() -> None:
    period = [10.0] * 10 + [30, 30, 18, 900, 700, 500] + [40.0] * 4
    flags = [*TRACED[:14], PROFILED | FIRST_OF_EPOCH, *TRACED[15:]]
    assert ratio(period, flags, steps=(12, 14), validating=(13,)) == pytest.approx(1.8)


def test_without_untraced_steps_it_is_not_known() -> None:
    assert ratio([10.0] * 6, [PROFILED] * 6, steps=(0, 5)) is None
    assert ratio([10.0] * 6, [0] * 6, steps=(0, 5)) is None
