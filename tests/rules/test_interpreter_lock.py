import math
from collections.abc import Mapping
from typing import Any

import pytest
from findings_builder import fired
from host_builder import beside_thread
from metrics_builder import build, replace, share

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.steps.blocked_in_step import BlockedInStep
from lightning_gpuprof.rules.steps.interpreter_lock import InterpreterLockHeld

RULE = InterpreterLockHeld()


def beside(
    waited_ms: float = 30.0, *, threads: int = 1, blocked_ms: Mapping[Phase, float] | None = None, **more: Any
) -> Metrics:
    """Steps of 50 ms that wait so long, a little in each phase, beside a thread that uses so many CPUs."""
    found = build(run={"torch.num_threads": threads}, process_cpus=1.2, blocked_ms=blocked_ms)
    return replace(found, interpreter_lock=beside_thread(waited_ms, **more))


def test_the_thread_is_named_with_its_line_and_the_time_lost() -> None:
    finding = fired(RULE, beside())
    assert (finding.severity, finding.subject) == ("critical", "thread metrics")
    assert "The main thread spends up to 30.0 ms of each 50.0 ms step waiting for it" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(30.0)


def test_no_more_is_lost_than_the_thread_computes() -> None:
    assert fired(RULE, beside(cpus=0.2)).gain.saved_ms_per_step == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("look_alike", "metrics"),
    [
        ("a thread that waits itself", beside(cpus=0.05)),
        ("threads of torch", beside(threads=8)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_quiet_on(look_alike: str, metrics: Metrics) -> None:
    if look_alike == "threads of torch":  # each phase's wait is then at most what its companions compute
        rows = tuple(
            replace(row, blocked=share(0.6 * row.wall_ms, 50.0)) for row in metrics.blocked or () if row.wall_ms > 1
        )
        metrics = replace(metrics, blocked=rows, cpu=replace(metrics.cpu, process_cpus=4.0))
    assert RULE.check(metrics) is None


@pytest.mark.parametrize(("in_forward_ms", "blamed"), [(0.3, False), (12.0, True)])
def test_where_the_training_thread_runs_python_itself_nobody_else_is_blamed(in_forward_ms: float, blamed: bool) -> None:
    """Python in forward, a sleep in backward, and a thread in native code: in forward we are late for the first."""
    metrics = beside(
        15.0,
        cpus=0.5,
        asked=200,
        late=120,
        blocked_ms={"forward": in_forward_ms, "backward": 15.0 - in_forward_ms},
        by_phase={"forward": (120, 118), "backward": (80, 2)},
    )
    assert (RULE.check(metrics) is not None) is blamed


@pytest.mark.parametrize("threads", [1, 4])
def test_a_healthy_run_with_python_in_forward_beside_a_busy_thread_has_none(threads: int) -> None:
    metrics = beside(1.0, cpus=0.3, asked=100, late=90, threads=threads)
    assert RULE.check(metrics) is None


def test_a_wait_that_is_in_one_phase_is_counted_once() -> None:
    metrics = beside(24.0, blocked_ms={"forward": 18.0, "backward": 6.0})
    found = {f.rule: f for f in diagnose(metrics, [RULE, BlockedInStep()]).findings}
    assert found.keys() == {"interpreter-lock", "blocked-in-step"}
    assert found["blocked-in-step"].gain is None
    assert "Same time as interpreter-lock" in found["blocked-in-step"].summary
    lock = found["interpreter-lock"].gain
    assert lock.saved_ms_per_step == pytest.approx(24.0)


@pytest.mark.parametrize(
    "metrics",
    [
        replace(beside(), interpreter_lock=None),
        beside(asked=9, late=9),
        beside(samples=19),
        beside(waited_ms=math.nan),
        replace(beside(), blocked=None),
    ],
)
def test_without_its_signals_it_is_not_evaluated(metrics: Metrics) -> None:
    with pytest.raises(MissingSignal):
        RULE.check(metrics)


def test_how_long_batches_take_to_make_is_not_told_beside_it() -> None:
    metrics = beside()
    waits = build(times_ms={"data_wait": 20.0}, num_workers=0)
    told = {f.rule for f in diagnose(waits).findings}
    assert {"input-bound", "single-process-loading"} <= told
    both = replace(metrics, shares=waits.shares, loader=waits.loader)
    diagnosis = diagnose(both)
    assert not {"input-bound", "single-process-loading"} & {f.rule for f in diagnosis.findings}
    assert "(interpreter-lock)" in {n.rule: n.why for n in diagnosis.not_evaluated}["input-bound"]


def test_what_the_main_process_waits_while_it_loads_data_is_left_out_and_said() -> None:
    waits = build(times_ms={"data_wait": 20.0}, num_workers=0)
    finding = fired(RULE, replace(beside(), shares=waits.shares, loader=waits.loader))
    assert finding.leaves.endswith("ms of data loading per step, some of which may also be waiting for the GIL")
    assert finding.advice.endswith(f"Remaining cost: {finding.leaves}.")
    assert not fired(RULE, beside()).leaves
