"""Matrix products have a size that is not a multiple of what tensor cores load at once, which slows them down.

## What it means
Tensor cores load 16 bytes at a time: 8 elements of half precision, 4 of TF32, 16 of fp8 and int8. If a row is no
multiple of that, the library pads or takes slower kernels. A vocabulary of 50,257 is the usual case.

## How it is measured
Roofline of trace windows with shapes: products (`mm`, `addmm`, `bmm`) whose number of columns is no such multiple, and
products of the same kind that share this size, beside the roofline share of aligned ones of that kind and dtype with a
quarter to four times their FLOPs. The gain is the difference. Only the 20 longest rows are known.

## When it is wrong
- Without aligned products to compare with it is not evaluated.
- A number of tokens or samples matters less than one of features, and counts only as a number of columns.

## What to do
Pad the size: `nn.Linear(…, 50304)` for 50,257 words, a hidden size, a batch with `drop_last=True`.
"""

from lightning_gpuprof.rules.base import Evidence, Finding, Metrics, MissingSignal, claims, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule


def _product(shape: str, ms: float, reached: float, dtype: str = "bf16") -> tuple[str, str, float, dict[str, object]]:
    """A row of an example's roofline."""
    return "aten::mm", shape, ms, {"ceiling_ratio": reached, "dtype": dtype}


def _run(*products: object, fits: bool = True, dtype: str = "bf16") -> dict[str, object]:
    """A run of an example with these products, and one that is aligned."""
    aligned = [_product("8192x768, 768x3072", 10.0, 0.6, dtype)] if fits else []
    return {"kernels": {"tensor core gemm": 30, "pointwise": 18}, "roofline": [*products, *aligned]}


_VOCABULARY = "8192x768, 768x50257"
_FORWARD, _BACKWARD = _product(_VOCABULARY, 12, 0.2), _product("8192x50257, 50257x768", 8.0, 0.3)


class TcMisaligned(KernelRule):
    id = "tc-misaligned"
    title = "Matrix sizes do not fit the tensor cores"
    explains = claims.MATRIX_KERNELS
    certainty = 0.6
    what = "misaligned products, share of the step"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    slower_ratio: float = threshold(0.80, source="heuristic")
    best_multiple: int = threshold(64, source="NVIDIA: 128 bytes on A100, 64 elements of half precision")

    examples = (
        fires("a vocabulary is 50257", "warning", "Pad 50257 to 50304", saves_ms=8, **_run(_FORWARD)),
        fires("its backward pass is slow", "critical", "20.0 ms", **_run(_FORWARD, _BACKWARD)),
        fires("in TF32", "warning", "multiples of 4", **_run(_product(_VOCABULARY, 12, 0.2, "tf32"), dtype="tf32")),
        fires("the product takes 5.01 of 50 ms", "info", "10 %", **_run(_product(_VOCABULARY, 5.01, 0.2))),
        quiet("the product takes 4.99 of 50 ms", **_run(_product(_VOCABULARY, 4.99, 0.2))),
        quiet("the product is padded to 50304", **_run(_product("8192x768, 768x50304", 12, 0.2))),
        quiet("50260 fits TF32", **_run(_product("8192x768, 768x50260", 12, 0.2, "tf32"), dtype="tf32")),
        quiet("products are in fp32", **_run(_product(_VOCABULARY, 12, 0.2, "fp32"))),
        looks_alike("the number of tokens is odd", **_run(_product("5185x768, 768x768", 20, 0.2))),
        looks_alike("the product is fast nevertheless", **_run(_product(_VOCABULARY, 12, 0.5))),
        not_evaluated("no product is aligned", "compare", **_run(_FORWARD, fits=False)),
        not_evaluated("there are no shapes", "record_shapes", **_run(fits=False)),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if any(window.misaligned is None for window in run.windows):
            raise MissingSignal("a trace window has no product of known shape: TraceConfig(record_shapes=True)")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        unfit = run.per_step(lambda window: sum(one.row.device_us for one in window.misaligned or ()))
        if not self.is_long(unfit):
            return None
        if not all(any(one.peer_ratio for one in window.misaligned or ()) for window in run.windows):
            raise MissingSignal("the trace windows have no aligned products to compare with")
        spent = run.per_step(lambda window: sum(one.row.device_us for one in window.slow_misaligned(self.slower_ratio)))
        saved = run.per_step(lambda window: sum(one.saved_us for one in window.slow_misaligned(self.slower_ratio)))
        if not self.is_long(spent) or not saved.is_worth():
            return None
        worst = max(run.windows[0].slow_misaligned(self.slower_ratio), key=lambda one: one.saved_us)
        padded = -(-worst.size // self.best_multiple) * self.best_multiple
        row, reached, peers = worst.row, worst.reached_ratio, worst.peer_ratio or 0.0
        return self.of_kernels(
            run,
            subject=f"{row.operator} {row.input_shape}",
            summary=f"Matrix products with a size of {worst.size} take {spent}. They "
            f"reach {percent(reached)} of the roofline; aligned products reach {percent(peers)}.",
            advice=f"Pad {worst.size} to {padded}, a multiple of {self.best_multiple}: a vocabulary or feature size in "
            f"the layer, a batch size by drop_last=True. {row.dtype} needs multiples of {worst.multiple}. The size is "
            f"in {row.operator} of {row.input_shape}.",
            time=spent,
            evidence=(
                Evidence(name="size", value=worst.size, limit=float(worst.multiple), source="NVIDIA: 16 bytes"),
                self.fact("reached share of the roofline", reached, "ratio"),
                self.fact("reached by aligned products", peers, "ratio"),
            ),
            cost=saved,
        )
