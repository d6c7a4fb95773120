"""When a slowdown goes on and when it does not, seen from steps alone."""

import random
from collections.abc import Sequence, Sized

import pytest

from lightning_gpuprof.capture.level_shift import HISTORY as HISTORY_BLOCKS
from lightning_gpuprof.capture.level_shift import LevelShift
from lightning_gpuprof.capture.slow_steps import COOLDOWN_NS, COOLDOWN_STEPS, Slowdown, SlowSteps
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import DISTURBED, FIRST_OF_EPOCH, PROFILED, Slot

MS = 1_000_000
SLOTS = [
    Slot(id=0, action="loop", phase="loop"),
    Slot(id=1, action="val", phase="validation"),
    Slot(id=2, action="save", phase="checkpoint"),
]


class Run:
    """Steps with 5 % of noise, handed over in flushes."""

    def __init__(self, flush: int = 5) -> None:
        self.slow_steps = SlowSteps(SLOTS)
        self.flush = flush
        self.random = random.Random(1)
        self.batch = 0
        self.now_ns = 0
        self.reported: list[tuple[int, Slowdown]] = []
        self.waiting: list[ClosedStep] = []

    def step(self, period_ms: float, *, flags: int = 0, slot: int = 0) -> None:
        period_ns = round(period_ms * MS * self.random.uniform(0.95, 1.05))
        charged = [0] * len(SLOTS)
        charged[slot] = period_ns
        end_ns = self.now_ns + period_ns
        self.waiting.append(
            ClosedStep(self.batch, self.now_ns, end_ns, self.batch, 0, flags, charged, None, -1),
        )
        self.now_ns = end_ns
        self.batch += 1
        if len(self.waiting) >= self.flush:
            waiting, self.waiting = self.waiting, []
            if slowdown := self.slow_steps.look(waiting):
                self.reported.append((self.batch, slowdown))

    def steps(self, count: int, period_ms: float, *, flags: int = 0, slot: int = 0) -> None:
        for _ in range(count):
            self.step(period_ms, flags=flags, slot=slot)


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_slowdown_that_goes_on_is_reported_soon_with_both_periods(run: Run) -> None:
    run.steps(200, 50)
    run.steps(20, 120)
    ((batch, slowdown),) = run.reported
    assert batch <= 206
    assert 45 * MS < slowdown.usual_ns < 55 * MS
    assert 110 * MS < slowdown.period_ns < 130 * MS


FAST_WITH_TEN_SLOW = [(1000, 0.5), (10, 5), (1000, 0.5)]
TWO_WITHIN_THE_COOLDOWN = [(300, 50), (30, 120), (50, 50), (30, 120)]
THE_COOLDOWN = (max(COOLDOWN_STEPS, COOLDOWN_NS // (50 * MS)), 50)


@pytest.mark.parametrize(
    ("flush", "stretches", "reports"),
    [
        pytest.param(1, [(200, 50), (1, 5000), (100, 50)], 0, id="a single long step is none"),
        pytest.param(5, [(1, 500), (9, 50)] * 60, 0, id="a slow step at every tenth is how the run is"),
        pytest.param(1, [(200, 50), *[(1, 50), (1, 500)] * 10], 1, id="every other step turns slow"),
        pytest.param(5, [(500, 50), (40, 70)], 0, id="forty steps within half of the median more"),
        pytest.param(5, [(500, 50), (70, 70)], 1, id="fifty and more that are longer"),
        pytest.param(5, [(500, 50), (120, 52.5)], 1, id="5 % for long enough"),
        pytest.param(5, [(500, 50), (500, 50.5)], 0, id="1 % is not worth a window"),
        pytest.param(5, [(20, 50), (300, 500)], 0, id="before there is a band nothing is slow"),
        pytest.param(10, FAST_WITH_TEN_SLOW, 0, id="a few slow milliseconds of a fast loop are none"),
        pytest.param(10, [*FAST_WITH_TEN_SLOW, (60, 5)], 1, id="a fast loop that stays slow"),
        pytest.param(5, [(300, 50), (3000, 120)], 1, id="a run that stays slow is reported once"),
        pytest.param(5, TWO_WITHIN_THE_COOLDOWN, 1, id="the second is within the cooldown"),
        pytest.param(5, [*TWO_WITHIN_THE_COOLDOWN, THE_COOLDOWN, (30, 120)], 2, id="one after the cooldown"),
    ],
)
def test_how_often_a_slowdown_is_reported(flush: int, stretches: Sequence[tuple[int, float]], reports: int) -> None:
    run = Run(flush)
    for count, period_ms in stretches:
        run.steps(count, period_ms)
    assert len(run.reported) == reports


def test_a_run_that_is_uneven_from_the_start_has_a_wide_band(run: Run) -> None:
    for _ in range(1000):
        run.step(run.random.choice([10, 20, 30, 40]))
    assert run.reported == []


@pytest.mark.parametrize(("flags", "slot"), [(PROFILED, 0), (DISTURBED, 0), (FIRST_OF_EPOCH, 0), (0, 1), (0, 2)])
def test_unusual_steps_count_for_nothing(flags: int, slot: int, run: Run) -> None:
    run.steps(200, 50)
    run.steps(100, 500, flags=flags, slot=slot)
    run.steps(100, 50)
    assert run.reported == []


@pytest.mark.parametrize("flags", [DISTURBED, 0])
def test_steps_beside_an_analysis_count_where_there_are_too_few_others(flags: int, run: Run) -> None:
    run.steps(20, 50)
    run.steps(60, 55, flags=DISTURBED)
    assert run.slow_steps.had_band
    run.steps(20, 200, flags=flags)
    assert len(run.reported) == 1


def test_that_an_analysis_slows_the_run_is_no_slowdown(run: Run) -> None:
    run.steps(40, 50)
    run.steps(100, 200, flags=DISTURBED)
    run.steps(20, 50)
    run.steps(40, 220, flags=DISTURBED)
    assert run.slow_steps.had_band
    assert run.reported == []


def test_too_few_steps_never_make_a_band(run: Run) -> None:
    run.steps(30, 50)
    run.steps(20, 50, flags=DISTURBED)
    run.steps(500, 50, flags=PROFILED)
    run.steps(500, 50, slot=1)
    assert not run.slow_steps.had_band


def test_slots_may_come_later_and_steps_be_older_than_they_are() -> None:
    slots = SLOTS[:1]
    watcher = SlowSteps(slots)
    plain = ClosedStep(0, 0, 5 * MS, 0, 0, 0, [5 * MS], None, -1)
    assert watcher.look([plain]) is None
    slots.append(SLOTS[1])
    assert watcher.look([plain, plain._replace(batch=1, charged=[0, 5 * MS])]) is None


def test_a_flush_without_steps_says_nothing() -> None:
    assert SlowSteps(SLOTS).look([]) is None


def test_a_level_that_stays_a_little_higher_does_not_make_each_look_longer() -> None:
    """2.5 % are above the allowance, but not worth a window; what is kept of it is bounded, and more is noticed."""
    shift = LevelShift()
    for period_ms in (50.0,) * 400 + (51.25,) * 20_000:
        assert shift.add(round(period_ms * MS)) is None
    assert max(len(kept) for kept in vars(shift).values() if isinstance(kept, Sized)) <= HISTORY_BLOCKS
    found = [shift.add(round(56.0 * MS)) for _ in range(400)]
    assert len([one for one in found if one is not None]) == 1
