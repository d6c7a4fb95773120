"""Finds attention that is computed as product, softmax and product, with the whole matrix of scores in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.operators import OperatorShapes
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    condition,
    gain,
    severity,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceRun, DeviceWindow, Measured, device_run, input_sizes
from lightning_gpuprof.rules.wording import millis, percent

_SOFTMAX = frozenset({"_softmax", "_softmax_backward_data", "_safe_softmax", "_masked_softmax"})
_PRODUCTS = frozenset({"bmm", "baddbmm", "bmm_out", "baddbmm_"})
_ON_SCORES = frozenset(
    {
        "add",
        "add_",
        "sub",
        "mul",
        "mul_",
        "div",
        "div_",
        "masked_fill",
        "masked_fill_",
        "where",
        "native_dropout",
        "native_dropout_backward",
        "copy_",
        "bernoulli_",
        "masked_scale",
        "_masked_scale",
        "fill_",
    }
)
_FUSED_BACKENDS = ("flash", "mem_efficient", "cudnn")

Sizes = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class _Attention:
    """What a window tells of unfused attention, in microseconds."""

    scores: Sizes
    """Shape of the largest matrix of scores."""
    softmax_us: float
    on_scores_us: float
    """Scaling, masks, dropout and copies of matrices of scores."""
    products_us: float


@dataclass(frozen=True, kw_only=True)
class AttentionUnfused(BaseRule):
    """Attention is computed in pieces, and the matrix of scores goes through memory several times.

    ## What it means

    softmax(Q Kᵀ) V in separate operators writes and reads a matrix of query length * key length for each head at every
    step: product, scaling, mask, softmax, dropout, product. A fused kernel keeps it in the chip.

    ## How it is measured

    In the operators of trace windows with shapes: a softmax over a matrix of at least 128 x 128, and batched products
    (`bmm`) that make or take a matrix of the same sizes, as many as its batch times heads. Their time and that of
    pointwise operators on tensors of exactly the softmax's shape is held against the period of untraced steps. The gain
    is the time without the products, which a fused kernel does, too; that it saves their traffic is not counted. Only
    the 20 longest rows of the operators are known.

    ## When it is wrong

    - A softmax without such products (a classifier over 50,000 words) is none; a fused kernel has no softmax.
    - Code that needs the scores themselves, to plot or to regularise them, cannot be fused.
    - It is silent where the host sets the pace.

    ## What to do

    `F.scaled_dot_product_attention(q, k, v, attn_mask=…, dropout_p=…, is_causal=…)`; in Hugging Face models
    `from_pretrained(…, attn_implementation="sdpa")`. Where it is called already, it fell back to its mathematical form:
    `need_weights=True`, a mask that needs a gradient, fp64, or switched-off backends do that.

    ## Example

    TimeSformer with 3,137 tokens: softmax and scaling of 8x12x3137x3137 take 84 ms of a step of 382 ms.
    """

    id = "attention-unfused"
    specialises = ("memory-bound-kernels",)

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    least_length: int = threshold(128, source="heuristic: shorter sequences gain little from fusing")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the operators of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if any(_shapes(window) is None for window in run.windows):
            raise MissingSignal("a trace window was recorded without shapes: TraceConfig(record_shapes=True)")
        found = [self._attention(window) for window in run.windows]
        if None in found or run.host_sets_the_pace:
            return None
        attentions = [one for one in found if one is not None]
        pieces = _per_step(run, [one.softmax_us + one.on_scores_us for one in attentions])
        whole = _per_step(run, [one.softmax_us + one.on_scores_us + one.products_us for one in attentions])
        ratio = whole.lower_ms / run.period_ms
        if ratio < self.least_ratio or not worthwhile(pieces.ms, run.period_ms):
            return None
        scores = "x".join(map(str, attentions[0].scores))
        softmax = _per_step(run, [one.softmax_us for one in attentions])
        return self.finding(
            severity=severity(pieces.lower_ms / run.period_ms, metrics.steps.steady_count),
            subject=f"attention with scores of {scores}",
            summary=(
                f"Attention in separate operators takes {millis(whole.ms)} of a step of {millis(run.period_ms)} "
                f"({percent(min(1.0, whole.ms / run.period_ms))}); {millis(pieces.ms)} of it is softmax "
                f"({millis(softmax.ms)}) and pointwise work on scores of {scores}, which a fused kernel never writes "
                "to memory."
            ),
            advice=_advice(metrics),
            evidence=(
                self.evidence(
                    "least_ratio", min(1.0, whole.ms / run.period_ms), "unfused attention, share of the step"
                ),
                Evidence(name="softmax and pointwise work on the scores", value=pieces.ms, unit="ms"),
                Evidence(name="scores", value=scores),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(pieces.ms, pieces.lower_ms, run.period_ms),
            confidence=0.8,
            explains=claims.MEMORY_KERNELS,
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


def _advice(metrics: Metrics) -> str:
    backends = condition(metrics, "flags.sdpa_backends")
    if isinstance(backends, str) and not any(name in backends for name in _FUSED_BACKENDS):
        return (
            f"Switch the fused backends on again (only {backends or 'none'} is allowed now): "
            "torch.backends.cuda.enable_flash_sdp(True) and enable_mem_efficient_sdp(True), and call "
            "F.scaled_dot_product_attention."
        )
    return (
        "Replace the products and the softmax by F.scaled_dot_product_attention(q, k, v, attn_mask=…, dropout_p=…) "
        '(Hugging Face: attn_implementation="sdpa"). Where it is called already, it fell back to its mathematical '
        "form: need_weights=True, output_attentions=True or fp64 do that."
    )
