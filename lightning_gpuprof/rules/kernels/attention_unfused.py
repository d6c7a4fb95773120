"""Finds attention that is computed as product, softmax and product, with the whole matrix of scores in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, Measured, input_sizes
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, condition, threshold, worthwhile
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule, of_every_step, share_of_step

_SOFTMAX = frozenset({"_softmax", "_softmax_backward_data", "_safe_softmax", "_masked_softmax"})
_PRODUCTS = frozenset({"bmm", "baddbmm", "bmm_out", "baddbmm_"})
_ON_SCORES = frozenset(
    "add add_ sub mul mul_ div div_ masked_fill masked_fill_ where native_dropout native_dropout_backward copy_ "  # noqa: SIM905
    "bernoulli_ masked_scale _masked_scale fill_".split()
)
_FUSED_BACKENDS = ("flash", "mem_efficient", "cudnn")

Sizes = tuple[int, ...]


def _row(operator: str, shapes: str, ms: float, phase: str = "forward") -> tuple[str, str, float, dict[str, str]]:
    """An operator of an example."""
    return f"aten::{operator}", shapes, ms, {"phase": phase}


_SCORES = "8x12x1024x1024"
_QK, _AV = _row("bmm", "96x1024x64, 96x64x1024", 3.0), _row("bmm", "96x1024x1024, 96x1024x64", 3.0)
_SCALE, _OTHER = _row("mul", f"{_SCORES}, ()", 4.0), _row("addmm", "768, 8192x768, 768x768", 10.0)
_PIECES = (_row("_softmax", _SCORES, 12.0), _SCALE, _QK, _AV, _OTHER)
_BACKWARD = _row("_softmax_backward_data", f"{_SCORES}, {_SCORES}", 8.0, "backward")
_FUSED = _row("_scaled_dot_product_flash_attention", ", ".join(["8x12x1024x64"] * 3), 20.0)
_CLASSES = _row("_softmax", "8x1024x50257", 20.0)
_SHORT = (_row("_softmax", "64x12x64x64", 12.0), _row("bmm", "768x64x64, 768x64x64", 9.0))
_KERNELS = {"tensor core gemm": 20, "pointwise": 28}
_MATH = {"flags.sdpa_backends": "math"}


def _run(*operators: object) -> dict[str, object]:
    """A run of an example with these operators."""
    return {"kernels": _KERNELS, "operators": operators}


@dataclass(frozen=True, kw_only=True)
class _Attention:
    """What a window shows of unfused attention, in microseconds."""

    scores: Sizes
    """Shape of the largest matrix of scores."""
    softmax_us: float
    on_scores_us: float
    """Scaling, masks, dropout and copies of matrices of scores."""
    products_us: float


@dataclass(frozen=True, kw_only=True)
class AttentionUnfused(KernelRule):
    """Attention runs as separate operators, and the matrix of scores goes through memory several times.

    ## What it means

    softmax(Q Kᵀ) V in separate operators writes and reads a matrix of query length x key length for each head in every
    step: product, scaling, mask, softmax, dropout, product. A fused kernel keeps it on the chip.

    ## How it is measured

    Trace windows with shapes: a softmax over matrices of at least 128 x 128, batched products (`bmm`) of the same
    sizes, and pointwise operators on tensors of the softmax's shape. The gain is their time without the products, which
    a fused kernel computes, too. Only the 20 longest rows of the operators are known.

    ## When it is wrong

    - Code that needs the scores themselves, to plot or to regularise them, cannot be fused.
    - Silent where the host sets the pace.

    ## What to do

    `F.scaled_dot_product_attention(q, k, v, attn_mask=…, dropout_p=…, is_causal=…)`; in Hugging Face models
    `from_pretrained(…, attn_implementation="sdpa")`. If it is called already, it fell back to the math backend:
    `need_weights=True`, a mask that needs a gradient, fp64, or disabled backends do that.
    """

    id = "attention-unfused"
    title = "Attention is computed without a fused kernel"
    specialises = ("memory-bound-kernels",)
    explains = claims.MEMORY_KERNELS
    certainty = 0.8

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    least_length: int = threshold(128, source="heuristic: shorter sequences gain little from fusing")

    examples = (
        fires("scores take 16 of 50 ms", "critical", "22.0 ms of every 50.0 ms step", saves_ms=16, **_run(*_PIECES)),
        fires("the backward pass has them", "critical", "Use fused", saves_ms=24, **_run(*_PIECES, _BACKWARD)),
        fires("fused backends are disabled", "critical", "Only math is allowed", **_run(*_PIECES), run=_MATH),
        fires("attention takes 5.01 of 50 ms", "info", "10 %", **_run(_row("_softmax", _SCORES, 2.01), _QK)),
        quiet("attention takes 4.99 of 50 ms", **_run(_row("_softmax", _SCORES, 1.99), _QK)),
        quiet("attention is fused", **_run(_FUSED)),
        quiet("sequences are short", **_run(*_SHORT)),
        looks_alike("a softmax over classes takes 20 ms", **_run(_CLASSES, _QK)),
        looks_alike("the host sets the pace", **{**_run(*_PIECES), "kernels": {"tensor core gemm": 30}}),
        not_evaluated("there are no shapes", "record_shapes", kernels=_KERNELS),
        not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"}),
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """Shapes have to be known."""
        if any(_shapes(window) is None for window in run.windows):
            raise MissingSignal("a trace window was recorded without shapes: TraceConfig(record_shapes=True)")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge the operators."""
        attentions = [one for window in run.windows if (one := self._attention(window)) is not None]
        if len(attentions) < len(run.windows):
            return None
        pieces = _per_step(run, [one.softmax_us + one.on_scores_us for one in attentions])
        whole = _per_step(run, [one.softmax_us + one.on_scores_us + one.products_us for one in attentions])
        if whole.lower_ms < self.least_ratio * run.period_ms or not worthwhile(pieces.ms, run.period_ms):
            return None
        scores = "x".join(map(str, attentions[0].scores))
        backends = condition(metrics, "flags.sdpa_backends")
        if isinstance(backends, str) and not any(name in backends for name in _FUSED_BACKENDS):
            change = Change(add=tuple(f"torch.backends.cuda.enable_{name}_sdp(True)" for name in _FUSED_BACKENDS[:2]))
            advice = f"Enable the fused backends: {'; '.join(change.add)}. Only {backends or 'none'} is allowed now."
        else:
            change = Change(
                remove=("torch.softmax(q @ k.transpose(-2, -1) * scale + mask, -1) @ v",),
                add=("F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)",),
            )
            advice = (
                f'Use fused attention: {change.add[0]}; in Hugging Face models attn_implementation="sdpa". If it is '
                "called already, need_weights=True, output_attentions=True or fp64 made it fall back."
            )
        return self.of_kernels(
            metrics,
            run,
            subject=f"attention with scores of {scores}",
            summary=(
                f"Attention without a fused kernel takes {of_every_step(whole.ms, run)}. Softmax and pointwise kernels "
                f"on the {scores} scores take {millis(pieces.ms)} of it."
            ),
            advice=advice,
            evidence=(
                self.evidence("least_ratio", share_of_step(whole.ms, run), "unfused attention, share of the step"),
                Evidence(name="softmax and pointwise kernels on the scores", value=pieces.ms, unit="ms"),
                Evidence(name="scores", value=scores),
            ),
            saved=pieces,
            change=change,
        )

    def _attention(self, window: DeviceWindow) -> _Attention | None:
        rows = _shapes(window) or ()
        products = [(row, matrices) for row in rows if (matrices := _product(row)) is not None]
        softmaxes = [
            (row, scores)
            for row in rows
            if _name(row) in _SOFTMAX and (scores := self._scores(row)) and _of(scores, products)
        ]
        if not softmaxes:
            return None
        shapes = {scores for _, scores in softmaxes}
        flat = {(prod(scores[:-2]), *scores[-2:]) for scores in shapes}
        largest = max(softmaxes, key=lambda item: item[0].device_self_us or 0.0)[1]
        return _Attention(
            scores=largest,
            softmax_us=_sum(row for row, _ in softmaxes),
            on_scores_us=_sum(
                row for row in rows if _name(row) in _ON_SCORES and set(input_sizes(row.input_shape)) & (shapes | flat)
            ),
            products_us=_sum(row for row, matrices in products if matrices & _alike(shapes)),
        )

    def _scores(self, row: OperatorShapes) -> Sizes | None:
        first = next(iter(input_sizes(row.input_shape)), ())
        return first if len(first) >= 3 and min(first[-2:]) >= self.least_length else None


def _shapes(window: DeviceWindow) -> tuple[OperatorShapes, ...] | None:
    operators = window.analysis.operators
    return None if operators is None else operators.shapes


def _name(row: OperatorShapes) -> str:
    return row.operator.rpartition("::")[2]


def _product(row: OperatorShapes) -> frozenset[Sizes] | None:
    """The matrices that a batched product takes and makes, the sizes of each in ascending order."""
    if _name(row) not in _PRODUCTS:
        return None
    given = [one for one in input_sizes(row.input_shape) if len(one) == 3][-2:]
    if len(given) != 2:
        return None
    (batch, rows, inner), (_, _, columns) = given
    return frozenset((batch, *sorted(sides)) for sides in ((rows, columns), (rows, inner), (inner, columns)))


def _of(scores: Sizes, products: Iterable[tuple[OperatorShapes, frozenset[Sizes]]]) -> bool:
    return any(matrices & _alike([scores]) for _, matrices in products)


def _alike(shapes: Iterable[Sizes]) -> frozenset[Sizes]:
    """Scores as the batched products have them: batch and heads as one, sides in ascending order."""
    return frozenset((prod(one[:-2]), *sorted(one[-2:])) for one in shapes)


def _sum(rows: Iterable[OperatorShapes]) -> float:
    return sum(row.device_self_us or 0.0 for row in rows)


def _per_step(run: DeviceRun, values_us: list[float]) -> Measured:
    pairs = zip(run.windows, values_us, strict=True)
    return Measured.over([window.per_step_ms(us) for window, us in pairs])
