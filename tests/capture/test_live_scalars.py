"""Scalars for loggers: a dozen names with their units, or all of them."""

from collections import deque
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.loggers import CSVLogger
from quiet_trainer import trainer_in

from lightning_gpuprof.capture.fence import Fence
from lightning_gpuprof.capture.lightning_loops import LoopEdges
from lightning_gpuprof.capture.live_scalars import STALE_NS, ScalarLog, sampled_scalars, step_scalars
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES

MS = 1_000_000
SLOTS = [Slot(id=number, action=phase, phase=phase) for number, phase in enumerate(PHASES)]


def step(*, flags: int = 0) -> ClosedStep:
    """A step with one millisecond in each phase."""
    return ClosedStep(
        batch=0,
        start_ns=0,
        end_ns=len(PHASES) * MS,
        global_step=0,
        epoch=0,
        flags=flags,
        charged=[MS] * len(PHASES),
        cpu_charged=None,
        run_delay_ns=-1,
    )


def sample(source: str, subject: str, **values: float | None) -> Sample:
    return Sample(source=source, subject=subject, t_ns=0, values=values)


class Stage:
    """What a log asks of trainer, clock and loops, and a logger that notes what it gets."""

    automatic_optimization = True
    batches_that_stepped = 10

    def __init__(self) -> None:
        self.loggers = [self]
        self.lightning_module = self
        self.slots = SLOTS
        self.logged: list[tuple[dict[str, float], int]] = []
        self.recent = deque([step()])

    def keep_recent(self, most: int) -> deque[ClosedStep]:
        return self.recent

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((metrics, step))


def logged(*samples: Sample, verbose: bool, now_ns: int = 0) -> dict[str, float]:
    stage: Any = Stage()
    fence = Fence(lambda part, message: pytest.fail(message))
    log = ScalarLog(stage, stage, stage, 10, 320, fence=fence, verbose=verbose, now=lambda: now_ns)
    for one in samples:
        log.take(one)
    log.log_if_due(10)
    ((scalars, at),) = stage.logged
    assert at == 9
    return dict(scalars)


SAMPLES = (
    sample("nvml", "gpu0", utilization_ratio=0.9, memory_used_bytes=2e9, power_w=300.0, sm_clock_mhz=1900.0, fan=3.0),
    sample("host", "process", cpu_cpus=1.5, rss_bytes=1e9),
    sample("host", "host", memory_available_bytes=8e9, load=3.0),
    sample("memory", "gpu0 forward", allocated_bytes=1e9),
)


def test_a_dozen_scalars_say_what_matters_most() -> None:
    found = logged(*SAMPLES, verbose=False)
    assert set(found) == {
        *(f"gpuprof/{name}_ms" for name in ("step", "data_wait", "h2d", "forward", "backward", "optimizer")),
        "gpuprof/callbacks_ms",
        "gpuprof/validation_ms",
        "gpuprof/samples_per_s",
        "gpuprof/gpu0/utilization_ratio",
        "gpuprof/gpu0/memory_used_bytes",
        "gpuprof/gpu0/power_w",
        "gpuprof/gpu0/sm_clock_mhz",
        "gpuprof/process/cpu_cpus",
        "gpuprof/host/memory_available_bytes",
    }


def test_all_are_logged_on_request() -> None:
    found = logged(*SAMPLES, verbose=True)
    assert {f"gpuprof/{phase}_ms" for phase in PHASES} <= set(found)
    assert found["gpuprof/gpu0/forward/allocated_bytes"] == 1e9
    assert (found["gpuprof/process/rss_bytes"], found["gpuprof/host/load"]) == (1e9, 3.0)


def test_a_value_that_is_read_limited_stays_until_it_is_read_again() -> None:
    often = sample("nvml", "gpu0", utilization_ratio=0.9, power_w=None)
    found = logged(sample("nvml", "gpu0", utilization_ratio=0.1, sm_clock_mhz=1000.0), often, verbose=False)
    assert found["gpuprof/gpu0/sm_clock_mhz"] == 1000.0
    assert found["gpuprof/gpu0/utilization_ratio"] == 0.9
    assert "gpuprof/gpu0/power_w" not in found


def test_steps_under_a_window_are_left_out() -> None:
    assert step_scalars([step(flags=PROFILED)], SLOTS, 32) == {}
    plain = step_scalars([step(flags=PROFILED), step()], SLOTS, 32)
    assert plain["gpuprof/step_ms"] == pytest.approx(len(PHASES))
    assert plain["gpuprof/samples_per_s"] == pytest.approx(32 / (len(PHASES) / 1000))


def test_what_has_not_been_read_for_a_minute_is_not_known_any_more() -> None:
    gone = logged(*SAMPLES, verbose=True, now_ns=STALE_NS + 1)
    assert not any(name.startswith("gpuprof/gpu0") for name in gone)
    assert "gpuprof/gpu0/power_w" in logged(*SAMPLES, verbose=True, now_ns=STALE_NS)
    assert sampled_scalars({("nvml", "gpu0"): {"power_w": (5, 1.0)}}, since_ns=6) == {}


class Deaf:
    """A logger that raises."""

    calls = 0

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls += 1
        raise ConnectionError("the server is gone")


def test_a_logger_that_raises_gets_nothing_more_and_the_others_do() -> None:
    stage: Any = Stage()
    first, second = Deaf(), Deaf()
    stage.loggers = [first, stage, second]
    reported: list[tuple[str, str]] = []
    log = ScalarLog(stage, stage, stage, 10, 320, fence=Fence(lambda part, message: reported.append((part, message))))
    with pytest.warns(RuntimeWarning, match="logger Deaf: switched off after ConnectionError: the server is gone"):
        log.log_if_due(10)
    for _ in range(2):
        stage.recent.append(step())
        log.log_if_due(10)
    assert len(stage.logged) == 3
    assert (first.calls, second.calls) == (1, 1)
    assert [part for part, _ in reported] == ["logger Deaf"]


def test_a_logger_that_changes_what_it_is_given_changes_nothing_for_the_next() -> None:
    class Greedy:
        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            metrics.clear()

    stage: Any = Stage()
    stage.loggers = [Greedy(), stage]
    ScalarLog(stage, stage, stage, 10, 320, fence=Fence(lambda part, message: None)).log_if_due(10)
    assert "gpuprof/step_ms" in stage.logged[0][0]


def test_what_we_log_ourselves_is_not_timed_as_logging_of_the_run(tmp_path: Path) -> None:
    stage: Any = Stage()
    timed: list[str] = []
    logger = CSVLogger(tmp_path)
    clock = StepClock()

    def place(name: str, phase: str) -> Any:
        timed.append(name)
        return nullcontext()

    tap: Any = SimpleNamespace(place=place)
    trainer = trainer_in(tmp_path, logger=logger)
    names = ("on_run", "on_start", "on_validation", "on_epoch_end", "on_exception", "on_failure")
    listeners: Any = dict.fromkeys(names, lambda *_: None)
    edges = LoopEdges(trainer, "fit", clock, tap, **listeners)
    edges.attach()
    with clock.context(clock.slot("logging", "logging")):  # where a step ends, and the next one has not begun
        logger.log_metrics({"theirs": 1.0}, 1)
        stage.loggers = [logger]
        ScalarLog(stage, stage, stage, 10, 320, fence=Fence(lambda part, message: None)).log_if_due(10)
    edges.detach()
    assert timed == ["CSVLogger.log_metrics"]
    assert "gpuprof/step_ms" in logger.experiment.metrics[-1]
