import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from findings_builder import fired
from metrics_builder import replace, share
from tiny_traces import Json, span, step
from trace_metrics import metrics_of, window_of

from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.model.host import GcUse
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.waiting import Blocked, InterpreterLock, PythonThread
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.launches.python_overhead import PythonOverhead

RULE = PythonOverhead()
PLACE = "train.py:41 training_step"
STEPS = 5
RANGES: Mapping[Phase, str] = {
    "forward": "[pl][profile][Strategy]SingleDeviceStrategy.training_step",
    "backward": "[pl][profile][Strategy]SingleDeviceStrategy.backward",
}


def window(
    *,
    python_us: float,
    op_us: float = 100.0,
    ops: int = 10,
    ranks: int = 1,
    with_stacks: bool = False,
    forward: str = RANGES["forward"],
) -> WindowFacts:
    """Steps of so many operators in forward and in backward; in forward Python is before each."""
    events: list[Json] = []
    now = 0.0
    for number in range(STEPS):
        begin = now
        for phase, between_us in (("forward", python_us / ops), ("backward", 0.0)):
            first = now
            for _ in range(ops):
                now += between_us
                events.append(span("cpu_op", "aten::mul", now, op_us))
                now += op_us
            name = forward if phase == "forward" else RANGES[phase]
            events.append(span("user_annotation", name, first, now - first))
            if with_stacks:
                events.append(span("python_function", "train.py(41): training_step", first, now - first))
        events.append(step(number, begin, now - begin))
    document = {"traceEvents": events, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": ranks}}
    return window_of(document)


def on_cpu(
    *windows: WindowFacts,
    forward_ms: float = 11.0,
    rest_ms: float = 1.0,
    waited_ms: float = 0.0,
    paused_ms: float | None = None,
    delay_ms: float = 0.0,
    samples: int = 40,
) -> Metrics:
    """A training on the CPU; backward takes a millisecond, and what is neither forward nor backward ``rest_ms``."""
    period_ms = forward_ms + 1.0 + rest_ms
    times: dict[Phase, float] = {"forward": forward_ms, "backward": 1.0}
    metrics = metrics_of(*windows, period_ms=period_ms, phases_ms=times, run={"device.type": "cpu"})
    blocked = (
        Blocked(
            phase="forward",
            wall_ms=forward_ms,
            blocked=share(waited_ms, period_ms),
            samples=samples,
            sites=((PLACE, 30), ("train.py:12 forward", 2)),
        ),
        Blocked(phase="backward", wall_ms=1.0, blocked=share(0.0, period_ms), samples=samples),
    )
    computed_ms = {"forward": max(0.0, forward_ms - waited_ms - delay_ms), "backward": 1.0}
    phases = tuple(msgspec.structs.replace(row, cpu_ms=computed_ms.get(row.phase)) for row in metrics.phases)
    collector = None
    if paused_ms is not None:
        collector = GcUse(pause_ms_per_step=paused_ms, pause_ratio=paused_ms / period_ms, longest_s=0.01)
    return replace(
        metrics,
        blocked=blocked,
        phases=phases,
        cpu=replace(metrics.cpu, run_delay_ratio=delay_ms / period_ms),
        host=msgspec.structs.replace(metrics.host, gc=collector),
    )


@pytest.mark.parametrize(("ops", "is_own"), [(10, True), (49, True), (51, False), (500, False)])
def test_the_model_is_compiled_only_where_operators_are_many(ops: int, is_own: bool) -> None:
    """10 ms of Python a step between twice as many operators, half of them in forward."""
    finding = fired(RULE, on_cpu(window(python_us=10_000.0, op_us=1.0 / ops, ops=ops)))
    own = "Vectorise the Python code in training_step() (train.py:41): "
    assert finding.advice.startswith(
        own if is_own else "Compile the model before trainer.fit: model = torch.compile(model)."
    )
    assert (finding.change is None) is is_own


def test_python_in_an_evaluation_is_found_without_a_backward() -> None:
    """It was never judged: "Healthy", where 83 % of each test step were one loop in Python."""
    of_test = window(python_us=10_000, forward="[pl][profile][Strategy]SingleDeviceStrategy.test_step")
    metrics = on_cpu(of_test)
    forward = tuple(row for row in metrics.blocked if row.phase == "forward")
    metrics = replace(metrics, blocked=forward, run={**metrics.run, "stage": "test"})
    assert fired(RULE, with_derived(metrics)).gain.saved_ms_per_step == pytest.approx(10.0, rel=0.1)


def test_a_function_that_forward_calls_is_mended_itself() -> None:
    """Beside 380 operators, a traced step of ``burn()`` had 22 us of Python for each."""
    metrics = on_cpu(window(python_us=10_000.0, op_us=0.002, ops=500))
    forward = msgspec.structs.replace((metrics.blocked or ())[0], sites=(("costs.py:49 burn", 30),))
    finding = fired(RULE, replace(metrics, blocked=(forward, *(metrics.blocked or ())[1:])))
    assert finding.advice.startswith("Vectorise the Python code in burn() (costs.py:49): ")
    assert finding.summary.startswith("Python code in burn() (costs.py:49) slows down the forward pass: ")


def test_python_in_forward_is_named_with_its_line() -> None:
    finding = fired(RULE, on_cpu(window(python_us=10_000.0)))
    assert (finding.severity, finding.subject) == ("critical", PLACE)
    assert finding.explains == claims.PYTHON
    assert finding.title == "Python code slows down the forward pass"
    assert "Python takes 10.0 ms of each 13.0 ms step" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(10.0)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("traced", "lost", "saved_ms", "lower_ms"),
    [
        pytest.param({"op_us": 200.0}, {}, 10.0, 8.0, id="what tracing adds to operators is not Python"),
        pytest.param(
            {"python_us": 30_000.0, "op_us": 200.0, "with_stacks": True},
            {},
            8.0,
            8.0,
            id="with stacks the lower counts",
        ),
        pytest.param({}, {"waited_ms": 2.0}, 8.0, 8.0, id="waiting"),
        pytest.param({}, {"paused_ms": 2.0}, 8.0, 8.0, id="pauses of the garbage collector"),
        pytest.param({}, {"delay_ms": 2.0}, 8.0, 8.0, id="waiting for a CPU"),
        pytest.param({"ranks": 4}, {}, 9.0, 9.0, id="backward of several ranks waits for others"),
    ],
)
def test_what_is_not_python_for_certain_is_in_neither_bound_or_not_in_the_lower(
    traced: dict[str, Any], lost: dict[str, float], saved_ms: float, lower_ms: float
) -> None:
    gain = fired(RULE, on_cpu(window(**{"python_us": 10_000.0, **traced}), **lost)).gain
    assert (gain.saved_ms_per_step, gain.saved_lower_ms_per_step) == pytest.approx((saved_ms, lower_ms))


@pytest.mark.parametrize(
    ("traced", "lost"),
    [
        pytest.param({"python_us": 1000.0, "op_us": 1000.0}, {}, id="operators take the time"),
        pytest.param({"python_us": 10_000.0}, {"waited_ms": 8.0}, id="waiting"),
        pytest.param({"python_us": 10_000.0}, {"delay_ms": 8.0}, id="waiting for a CPU"),
        pytest.param({"python_us": 10_000.0}, {"paused_ms": 8.0}, id="pauses of the garbage collector"),
        pytest.param({"python_us": 100.0}, {"forward_ms": 50.0}, id="time that no traced step took"),
    ],
)
def test_it_is_quiet_where_something_else_takes_the_time(traced: dict[str, float], lost: dict[str, float]) -> None:
    assert RULE.check(on_cpu(window(**traced), **lost)) is None


@pytest.mark.parametrize(
    ("python_us", "forward_ms", "rest_ms", "fires"),
    [
        pytest.param(2800.0, 3.8, 1.0, False, id="less than six tenths of forward and backward"),
        pytest.param(3200.0, 4.2, 1.0, True, id="more"),
        pytest.param(4000.0, 5.0, 20.0, True, id="a part of the step that is worth naming"),
        pytest.param(4000.0, 5.0, 23.0, False, id="a smaller one"),
    ],
)
def test_its_shares_of_the_model_and_of_the_step_decide(
    python_us: float, forward_ms: float, rest_ms: float, fires: bool
) -> None:
    metrics = on_cpu(window(python_us=python_us), forward_ms=forward_ms, rest_ms=rest_ms)
    assert (RULE.check(metrics) is not None) is fires


@pytest.mark.parametrize(("python_us", "fires"), [(1050.0, True), (950.0, False)])
def test_in_small_models_hooks_may_be_most_of_it(python_us: float, fires: bool) -> None:
    metrics = on_cpu(window(python_us=python_us, op_us=1.0), forward_ms=python_us / 1e3 + 0.01)
    metrics = replace(metrics, shares={**metrics.shares, "backward": share(0.01, metrics.period_ms)})
    assert (RULE.check(metrics) is not None) is fires


def test_under_load_the_share_is_of_what_the_thread_had() -> None:
    """A thread that waits half of the time for a CPU still spends most of the rest in Python."""
    told = window(python_us=10_000.0)
    assert fired(RULE, on_cpu(told, forward_ms=22.0, delay_ms=3.0)).gain.saved_ms_per_step <= 10.0


def test_where_others_have_the_cpu_most_of_the_time_what_the_thread_computes_decides() -> None:
    """The median of the delay, over all phases, can be above that of forward: their difference says nothing."""
    metrics = on_cpu(window(python_us=10_000.0))
    finding = fired(RULE, replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=0.9)))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(10.0)


def untraced(*, asked: int = 40, late: int = 33, thread_cpus: float = 0.0, **lost: float) -> Metrics:
    busy = PythonThread(name="metrics", cpus=thread_cpus)
    by_phase: dict[Phase, tuple[int, int]] = {"forward": (asked, late), "data_wait": (100, 100)}
    lock = InterpreterLock(asked=asked, late=late, by_phase=by_phase, threads=(busy,))
    return replace(on_cpu(**lost), interpreter_lock=lock)


def test_without_a_window_python_in_one_piece_is_told_by_who_has_the_interpreter() -> None:
    finding = fired(RULE, untraced())
    assert finding.subject == PLACE
    assert "estimated from how often another thread waited 1 ms" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(12.0 * 33 / 40)
    assert (finding.gain.saved_lower_ms_per_step or 0.0) < finding.gain.saved_ms_per_step


def test_without_a_window_the_share_is_of_the_phases_with_their_waiting() -> None:
    finding = fired(RULE, untraced(asked=200, late=85, waited_ms=6.0))
    assert finding.gain.saved_ms_per_step == pytest.approx(12.0 * 85 / 200)  # of 6 ms in which it did not wait


@pytest.mark.parametrize(
    "of",
    [
        pytest.param({"asked": 200, "late": 120, "paused_ms": 6.0}, id="pauses of the collector"),
        pytest.param({"late": 4}, id="operators of torch"),
        # As recorded in a transformer and a convolutional network beside programs that take the CPUs; the last leaves
        # Python next to nothing.
        pytest.param({"asked": 34, "late": 8, "rest_ms": 9.0, "forward_ms": 13.0, "delay_ms": 9.0}, id="transformer"),
        pytest.param({"asked": 31, "late": 1, "rest_ms": 9.0, "forward_ms": 15.0, "delay_ms": 10.0}, id="convolution"),
        pytest.param({"rest_ms": 9.0, "forward_ms": 200.0, "delay_ms": 199.5}, id="nearly all waits for a CPU"),
    ],
)
def test_without_a_window_pauses_operators_and_waiting_for_a_cpu_are_no_python(of: dict[str, Any]) -> None:
    assert RULE.check(untraced(**of)) is None


def test_without_a_window_python_is_found_beside_programs_that_take_the_cpus() -> None:
    """As recorded where forward computes 15 ms in Python beside two programs and others, on two CPUs."""
    finding = fired(RULE, untraced(asked=170, late=141, forward_ms=48.6, rest_ms=8.9, delay_ms=38.9))
    assert finding.subject == PLACE
    assert finding.gain.saved_ms_per_step == pytest.approx((48.6 + 1.0 - 38.9) * 141 / 170)


@pytest.mark.parametrize(("late", "fires"), [(10, True), (9, True), (8, False)])
def test_in_a_fit_of_a_second_it_has_to_be_nearly_all(late: int, fires: bool) -> None:
    """Six tenths of forward and backward for certain; what is gained for certain is less than what was seen."""
    finding = RULE.check(untraced(asked=10, late=late))
    assert (finding is not None) is fires
    if finding is not None and finding.gain is not None:
        assert (finding.gain.saved_lower_ms_per_step or 0.0) < 0.8 * 12.0


@pytest.mark.parametrize("metrics", [untraced(asked=9, late=9), untraced(thread_cpus=0.5), on_cpu()])
def test_without_a_window_few_looks_or_another_thread_tell_nothing(metrics: Metrics) -> None:
    with pytest.raises(MissingSignal, match="no trace window of ordinary steps"):
        RULE.check(metrics)


def test_without_cpu_times_or_with_few_or_impossible_ones_it_is_not_evaluated() -> None:
    told = window(python_us=10_000.0)
    for metrics in (replace(on_cpu(told), blocked=None), on_cpu(told, samples=19)):
        with pytest.raises(MissingSignal, match="CPU times of 20 steps are needed"):
            RULE.check(metrics)
    with pytest.raises(MissingSignal):
        RULE.check(on_cpu(told, waited_ms=math.nan))
