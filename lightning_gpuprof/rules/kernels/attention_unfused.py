"""Attention runs as separate operators, and the matrix of scores goes through memory several times.

## What it means
softmax(Q Kᵀ) V in separate operators writes and reads a matrix of query length x key length for each head in every
step: product, scaling, mask, softmax, dropout, product. A fused kernel keeps it on the chip.

## How it is measured
Trace windows with shapes: a softmax over large matrices, batched products (`bmm`) of the same sizes, and pointwise
operators on tensors of the softmax's shape. The gain is their time without the products, which a fused kernel computes,
too. Only the 20 longest rows of the operators are known.

## When it is wrong
- Code that needs the scores themselves, to plot or to regularise them, cannot be fused.

## What to do
`F.scaled_dot_product_attention(q, k, v, attn_mask=…, dropout_p=…, is_causal=…)`; in Hugging Face models
`from_pretrained(…, attn_implementation="sdpa")`. If it is called already, it fell back to the math backend:
`need_weights=True`, a mask that needs a gradient, fp64, or disabled backends do that.
"""

from lightning_gpuprof.model.share import Measured
from lightning_gpuprof.rules.base import Change, Finding, Metrics, MissingSignal, claims, millis, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule
from lightning_gpuprof.rules.torch_advice import BEFORE_FIT

_FUSED_BACKENDS = ("flash", "mem_efficient", "cudnn")


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


class AttentionUnfused(KernelRule):
    id = "attention-unfused"
    title = "Attention runs without a fused kernel"
    specialises = ("memory-bound-kernels",)
    explains = claims.MEMORY_KERNELS
    certainty = 0.8
    what = "unfused attention, share of the step"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    least_length: int = threshold(128, source="heuristic: shorter sequences gain little from fusing")

    examples = (
        fires("scores take 16 of 50 ms", "critical", "22.0 ms of each 50.0 ms step", saves_ms=16, **_run(*_PIECES)),
        fires("the backward pass has them", "critical", "Use fused", saves_ms=24, **_run(*_PIECES, _BACKWARD)),
        fires(
            "fused backends are disabled", "critical", "Now only math attention is enabled", **_run(*_PIECES), run=_MATH
        ),
        fires("attention takes 5.01 of 50 ms", "info", "10 %", **_run(_row("_softmax", _SCORES, 2.01), _QK)),
        quiet("attention takes 4.99 of 50 ms", **_run(_row("_softmax", _SCORES, 1.99), _QK)),
        quiet("attention is fused", **_run(_FUSED)),
        quiet("sequences are short", **_run(*_SHORT)),
        looks_alike("a softmax over classes takes 20 ms", **_run(_CLASSES, _QK)),
        looks_alike("the host is the bottleneck", **{**_run(*_PIECES), "kernels": {"tensor core gemm": 30}}),
        not_evaluated("there are no shapes", "record_shapes", kernels=_KERNELS),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if any(window.attention is None for window in run.windows):
            raise MissingSignal("a trace window was recorded without shapes: TraceConfig(record_shapes=True)")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        known = [(window, window.attention) for window in run.windows if window.attention is not None]
        found = [(w, one) for w, attention in known if (one := attention.unfused(self.least_length)) is not None]
        if len(found) < len(run.windows):
            return None
        pieces = run.cost(Measured.over([window.per_step_ms(one.pieces_us) for window, one in found]))
        whole = run.cost(Measured.over([window.per_step_ms(one.pieces_us + one.products_us) for window, one in found]))
        if not self.is_long(whole) or not pieces.is_worth():
            return None
        scores = "x".join(map(str, found[0][1].scores))
        backends = metrics.condition("flags.sdpa_backends")
        change = Change(
            remove=("torch.softmax(q @ k.transpose(-2, -1) * scale + mask, -1) @ v",),
            add=("F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)",),
        )
        advice = (
            f'Use fused attention: {change.add[0]}; in Hugging Face models attn_implementation="sdpa". If the '
            "code calls it already, need_weights=True, output_attentions=True or fp64 makes it fall back."
        )
        if isinstance(backends, str) and not any(name in backends for name in _FUSED_BACKENDS):
            enabled = tuple(f"torch.backends.cuda.enable_{name}_sdp(True)" for name in _FUSED_BACKENDS[:2])
            change = Change(add=enabled, place=BEFORE_FIT)
            advice = (
                f"Enable the fused backends: {'; '.join(change.add)}. Now only {backends or 'no'} attention is enabled."
            )
        return self.of_kernels(
            run,
            subject=f"attention with scores of {scores}",
            summary=f"Attention without a fused kernel takes {whole}. Softmax and "
            f"pointwise kernels on the {scores} scores take {millis(pieces.ms)} of that.",
            advice=advice,
            time=whole,
            evidence=(
                self.fact("softmax and pointwise kernels on the scores", pieces.ms, "ms"),
                self.fact("scores", scores),
            ),
            cost=pieces,
            change=change,
        )
