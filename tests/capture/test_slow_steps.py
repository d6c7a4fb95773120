"""When a slowdown goes on and when it does not, told from steps alone."""

import random

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
        self.told: list[tuple[int, Slowdown]] = []
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
                self.told.append((self.batch, slowdown))

    def steps(self, count: int, period_ms: float, *, flags: int = 0, slot: int = 0) -> None:
        for _ in range(count):
            self.step(period_ms, flags=flags, slot=slot)


def test_a_slowdown_that_goes_on_is_told_soon_with_both_periods() -> None:
    run = Run()
    run.steps(200, 50)
    run.steps(20, 120)
    assert len(run.told) == 1
    batch, slowdown = run.told[0]
    assert batch <= 206
    assert 45 * MS < slowdown.usual_ns < 55 * MS
    assert 110 * MS < slowdown.period_ns < 130 * MS


def test_a_single_long_step_is_no_slowdown() -> None:
    run = Run(flush=1)
    run.steps(200, 50)
    run.step(5000)
    run.steps(100, 50)
    assert run.told == []


def test_a_slow_step_at_every_tenth_is_how_the_run_is() -> None:
    run = Run()
    for batch in range(600):
        run.step(500 if batch % 10 == 0 else 50)
    assert run.told == []


def test_every_other_step_turning_slow_is_a_slowdown() -> None:
    run = Run(flush=1)
    run.steps(200, 50)
    for batch in range(20):
        run.step(500 if batch % 2 else 50)
    assert len(run.told) == 1


def test_a_run_that_is_uneven_from_the_start_has_a_wide_band() -> None:
    run = Run()
    for _ in range(1000):
        run.step(run.random.choice([10, 20, 30, 40]))
    assert run.told == []


def test_steps_within_half_of_the_median_more_are_no_slowdown() -> None:
    run = Run()
    run.steps(200, 50)
    run.steps(200, 70)
    assert run.told == []


def test_unusual_steps_count_for_nothing() -> None:
    for flags, slot in ((PROFILED, 0), (DISTURBED, 0), (FIRST_OF_EPOCH, 0), (0, 1), (0, 2)):
        run = Run()
        run.steps(200, 50)
        run.steps(100, 500, flags=flags, slot=slot)
        run.steps(100, 50)
        assert run.told == [], (flags, slot)


def test_steps_beside_an_analysis_count_where_there_are_too_few_others() -> None:
    run = Run()
    run.steps(20, 50)
    run.steps(60, 55, flags=DISTURBED)
    assert run.slow_steps.had_band
    run.steps(20, 200, flags=DISTURBED)
    assert len(run.told) == 1
    back = Run()
    back.steps(20, 50)
    back.steps(60, 55, flags=DISTURBED)
    back.steps(20, 200)
    assert len(back.told) == 1


def test_that_an_analysis_slows_the_run_is_no_slowdown() -> None:
    run = Run()
    run.steps(40, 50)
    run.steps(100, 200, flags=DISTURBED)
    run.steps(20, 50)
    run.steps(40, 220, flags=DISTURBED)
    assert run.slow_steps.had_band
    assert run.told == []


def test_too_few_steps_never_make_a_band() -> None:
    run = Run()
    run.steps(30, 50)
    run.steps(20, 50, flags=DISTURBED)
    run.steps(500, 50, flags=PROFILED)
    run.steps(500, 50, slot=1)
    assert not run.slow_steps.had_band


def test_before_there_is_a_band_nothing_is_slow() -> None:
    run = Run()
    run.steps(20, 50)
    run.steps(300, 500)
    assert run.told == []


def test_a_few_slow_milliseconds_of_a_fast_loop_are_no_slowdown() -> None:
    run = Run(flush=10)
    run.steps(1000, 0.5)
    run.steps(10, 5)
    run.steps(1000, 0.5)
    assert run.told == []
    run.steps(60, 5)
    assert len(run.told) == 1


def test_a_run_that_stays_slow_is_told_once() -> None:
    run = Run()
    run.steps(300, 50)
    run.steps(3000, 120)
    assert len(run.told) == 1


def test_a_slowdown_after_the_first_is_told_when_the_cooldown_is_over() -> None:
    run = Run()
    run.steps(300, 50)
    run.steps(30, 120)
    run.steps(50, 50)
    run.steps(30, 120)  # within the cooldown
    assert len(run.told) == 1
    run.steps(max(COOLDOWN_STEPS, COOLDOWN_NS // (50 * MS)), 50)
    run.steps(30, 120)
    assert len(run.told) == 2


def test_slots_may_come_later_and_steps_be_older_than_they_are() -> None:
    slots = SLOTS[:1]
    watcher = SlowSteps(slots)
    plain = ClosedStep(0, 0, 5 * MS, 0, 0, 0, [5 * MS], None, -1)
    assert watcher.look([plain]) is None
    slots.append(SLOTS[1])
    assert watcher.look([plain, plain._replace(batch=1, charged=[0, 5 * MS])]) is None


def test_a_flush_without_steps_says_nothing() -> None:
    assert SlowSteps(SLOTS).look([]) is None
