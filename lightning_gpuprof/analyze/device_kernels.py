"""The trace windows that rules on kernels can look at, and their operators that compute attention piece by piece."""

from collections.abc import Iterable, Sequence
from math import prod

from lightning_gpuprof.analyze.matrix_kernels import misaligned, off_tensor_cores
from lightning_gpuprof.model.device_kernels import (
    AttentionOperators,
    DeviceRun,
    DeviceWindow,
    Pointwise,
    ScoresOperator,
    Sizes,
    class_us,
    input_sizes,
    is_ordinary,
)
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.missing import MissingSignal, or_unmeasured
from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.model.signals import device_step
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.model.window import WindowFacts

_POINTWISE = ("elementwise", "norm/reduction")

_SOFTMAX = frozenset({"_softmax", "_softmax_backward_data", "_safe_softmax", "_masked_softmax"})

_PRODUCTS = frozenset({"bmm", "baddbmm", "bmm_out", "baddbmm_"})

_ON_SCORES = frozenset(
    "add add_ sub mul mul_ div div_ masked_fill masked_fill_ where native_dropout native_dropout_backward copy_ "  # noqa: SIM905
    "bernoulli_ masked_scale _masked_scale fill_".split()
)


@or_unmeasured
def device_run(metrics: Metrics) -> DeviceRun | None:
    """The windows of a run that rules on kernels can look at; its ``device_step`` and ``fetch`` are read.

    Returns:
        None if the model is known to run on the CPU: then there are no kernels that could be at fault.

    Raises:
        MissingSignal: Too few steady steps, or no window with the device work of whole steps.
    """
    period_ms = metrics.step_ms
    if metrics.is_cpu_only:
        return None
    windows = tuple(window for facts in metrics.windows if (window := _device_window(facts)) is not None)
    if not windows:
        raise MissingSignal("no trace window has the device activity of whole steps")
    return DeviceRun(
        period_ms=period_ms,
        steady_steps=metrics.steps.steady_count,
        windows=windows,
        starved_ratio=_starved_ratio(metrics),
        off_tensor_cores=or_unmeasured(off_tensor_cores)(windows),
        pointwise=_pointwise(windows),
    )


def _starved_ratio(metrics: Metrics) -> float:
    step = device_step(metrics)
    if step is None or step.window is None:
        return 0.0
    return step.starved_ratio + (
        step.idle_by_phase.get("data_wait", 0.0) if metrics.fetch.workers_set_the_pace else 0.0
    )


def _device_window(facts: WindowFacts) -> DeviceWindow | None:
    analysis = facts.analysis
    if analysis is None or analysis.kernels is None or not analysis.kernels.count:
        return None
    if not facts.devices or not facts.steps_us or not is_ordinary(facts):
        return None
    shapes = None if analysis.operators is None else analysis.operators.shapes
    roofline = analysis.roofline
    return DeviceWindow(
        facts=facts,
        analysis=analysis,
        kernels=analysis.kernels,
        steps=len(facts.steps_us),
        attention=None if shapes is None else attention_operators(shapes),
        misaligned=misaligned(roofline) if roofline is not None and roofline.rows else None,
    )


@or_unmeasured
def _pointwise(windows: Sequence[DeviceWindow]) -> Pointwise:
    rooflines = [window.analysis.roofline for window in windows if window.analysis.roofline is not None]
    peak = next((roofline.bytes_per_s for roofline in rooflines if roofline.bytes_per_s), None)
    rows = [
        row
        for roofline in rooflines
        for row in roofline.rows
        if row.kind in _POINTWISE and row.bytes_per_call and row.faster_than is None
    ]
    seconds = sum(row.device_us for row in rows) / 1e6
    moved = sum((row.bytes_per_call or 0.0) * row.calls for row in rows)
    return Pointwise(
        time=Measured.over([window.per_step_ms(class_us(window, *_POINTWISE)) for window in windows]),
        elementwise=Measured.over([window.per_step_ms(class_us(window, "elementwise")) for window in windows]),
        bandwidth_ratio=moved / seconds / peak if peak is not None and seconds > 0 else None,
        names=list(dict.fromkeys(f"{row.operator} of {row.input_shape}" for row in rows))[:3],
    )


def attention_operators(rows: Iterable[OperatorShapes]) -> AttentionOperators:
    """A softmax over matrices that batched products take or make, those products, and pointwise operators on them."""
    rows = tuple(rows)
    products = [(row, matrices) for row in rows if (matrices := _matrices(row))]
    made = frozenset[Sizes]().union(*(matrices for _, matrices in products))
    found = [
        ScoresOperator(kind="softmax", scores=frozenset({scores}), device_us=row.device_self_us or 0.0)
        for row in rows
        if _name(row) in _SOFTMAX and (scores := _scores(row)) is not None and _alike(scores) in made
    ]
    shapes = frozenset[Sizes]().union(*(one.scores for one in found))
    for row in rows:
        sizes = set(input_sizes(row.input_shape)) if _name(row) in _ON_SCORES else set()
        own = frozenset(one for one in shapes if sizes & {one, (prod(one[:-2]), *one[-2:])})
        if own:
            found.append(ScoresOperator(kind="pointwise", scores=own, device_us=row.device_self_us or 0.0))
    for row, matrices in products:
        own = frozenset(one for one in shapes if _alike(one) in matrices)
        found.append(ScoresOperator(kind="product", scores=own, device_us=row.device_self_us or 0.0))
    return AttentionOperators(operators=tuple(found))


def _name(row: OperatorShapes) -> str:
    return row.operator.rpartition("::")[2]


def _scores(row: OperatorShapes) -> Sizes | None:
    first = next(iter(input_sizes(row.input_shape)), ())
    return first if len(first) >= 3 else None


def _matrices(row: OperatorShapes) -> frozenset[Sizes]:
    """What a batched product takes and makes, the sides of each in ascending order; empty for all else."""
    given = [one for one in input_sizes(row.input_shape) if len(one) == 3][-2:] if _name(row) in _PRODUCTS else []
    if len(given) != 2:
        return frozenset()
    (batch, rows, inner), (_, _, columns) = given
    return frozenset((batch, *sorted(sides)) for sides in ((rows, columns), (rows, inner), (inner, columns)))


def _alike(scores: Sizes) -> Sizes:
    """Scores as the batched products have them: batch and heads as one, sides in ascending order."""
    return (prod(scores[:-2]), *sorted(scores[-2:]))
