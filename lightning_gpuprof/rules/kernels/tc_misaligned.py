"""Finds products whose sizes do not fit tensor cores, and that are slower than products of the run that do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.device_kernels import DeviceRun, DeviceWindow, Measured, input_sizes
from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import percent
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal, threshold, worthwhile
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import KernelRule, of_every_step, share_of_step

_MULTIPLES = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""16 bytes of elements. NVIDIA, Matrix Multiplication Background, "Requirements to use Tensor Cores"."""

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmm_", "linear"})


def _product(shape: str, ms: float, reached: float, dtype: str = "bf16") -> tuple[str, str, float, dict[str, object]]:
    """A row of an example's roofline."""
    return "aten::mm", shape, ms, {"ceiling_ratio": reached, "dtype": dtype}


def _run(*products: object, fits: bool = True, dtype: str = "bf16") -> dict[str, object]:
    """A run of an example with these products, and one that is aligned."""
    aligned = [_product("8192x768, 768x3072", 10.0, 0.6, dtype)] if fits else []
    return {"kernels": {"tensor core gemm": 30, "pointwise": 18}, "roofline": [*products, *aligned]}


_VOCABULARY = "8192x768, 768x50257"
_BACKWARD = _product("8192x50257, 50257x768", 8.0, 0.3)


@dataclass(frozen=True, kw_only=True)
class _Slow:
    """A product with a size that does not fit, and what a product that fits would save."""

    row: RooflineRow
    size: int
    multiple: int
    peer_ratio: float
    """Share of the roofline that the products of similar work that fit reach."""

    @property
    def saved_us(self) -> float:
        """At the peers' share of the roofline; 0 if it is as good."""
        return self.row.device_us * max(0.0, 1.0 - (self.row.ceiling_ratio or 0.0) / self.peer_ratio)


@dataclass(frozen=True, kw_only=True)
class TcMisaligned(KernelRule):
    """Matrix products have a size that is no multiple of what tensor cores load at once, and are slower for it.

    ## What it means

    Tensor cores load 16 bytes at a time: 8 elements of half precision, 4 of TF32, 16 of fp8 and int8. If a row is no
    multiple of that, the library pads or takes slower kernels. A vocabulary of 50,257 is the usual case.

    ## How it is measured

    Roofline of trace windows with shapes: products (`mm`, `addmm`, `bmm`) whose number of columns is no such multiple,
    and products of the same kind that share this size. They take at least a tenth of the step and reach less than 80 %
    of the roofline share of aligned products of the same kind and dtype with a quarter to four times their FLOPs. The
    gain is the difference. Only the 20 longest rows are known.

    ## When it is wrong

    - Without aligned products to compare with it is not evaluated.
    - A number of tokens or samples matters less than one of features, and counts only as a number of columns.
    - Silent where the host sets the pace.

    ## What to do

    Pad the size: `nn.Linear(…, 50304)` for 50,257 words, a hidden size, a batch with `drop_last=True`.
    """

    id = "tc-misaligned"
    title = "Matrix sizes do not fit the tensor cores"
    explains = claims.MATRIX_KERNELS
    certainty = 0.6

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    slower_ratio: float = threshold(0.80, source="heuristic")
    best_multiple: int = threshold(64, source="NVIDIA: 128 bytes on A100, 64 elements of half precision")

    examples = (
        fires(
            "a vocabulary is 50257", "warning", "Pad 50257 to 50304", saves_ms=8, **_run(_product(_VOCABULARY, 12, 0.2))
        ),
        fires("its backward pass is slow", "critical", "20.0 ms", **_run(_product(_VOCABULARY, 12, 0.2), _BACKWARD)),
        fires("in TF32", "warning", "multiples of 4", **_run(_product(_VOCABULARY, 12, 0.2, "tf32"), dtype="tf32")),
        fires("it takes 5.01 of 50 ms", "info", "10 %", **_run(_product(_VOCABULARY, 5.01, 0.2))),
        quiet("it takes 4.99 of 50 ms", **_run(_product(_VOCABULARY, 4.99, 0.2))),
        quiet("it is padded to 50304", **_run(_product("8192x768, 768x50304", 12, 0.2))),
        quiet("50260 fits TF32", **_run(_product("8192x768, 768x50260", 12, 0.2, "tf32"), dtype="tf32")),
        quiet("products are in fp32", **_run(_product(_VOCABULARY, 12, 0.2, "fp32"))),
        looks_alike("the number of tokens is odd", **_run(_product("5185x768, 768x768", 20, 0.2))),
        looks_alike("the product is fast nevertheless", **_run(_product(_VOCABULARY, 12, 0.5))),
        not_evaluated("no product is aligned", "compare", **_run(_product(_VOCABULARY, 12, 0.2), fits=False)),
        not_evaluated("there are no shapes", "record_shapes", **_run(fits=False)),
        not_evaluated("there is no trace window", "no trace window", run={"device.type": "cuda"}),
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        """Shapes have to be known."""
        if any(w.analysis.roofline is None or not w.analysis.roofline.rows for w in run.windows):
            raise MissingSignal("a trace window holds no product of known shape: TraceConfig(record_shapes=True)")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        """Judge the products."""
        unfit = [[row for row, _, _ in _unfit(window)] for window in run.windows]
        time = Measured.over([w.per_step_ms(_sum(rows)) for w, rows in zip(run.windows, unfit, strict=True)])
        if time.lower_ms < self.least_ratio * run.period_ms:
            return None
        slow = [_slow(window) for window in run.windows]
        if any(found is None for found in slow):
            raise MissingSignal("the trace windows hold no aligned products to compare with")
        slower = [
            [one for one in found or () if (one.row.ceiling_ratio or 0.0) < self.slower_ratio * one.peer_ratio]
            for found in slow
        ]
        spent = Measured.over(
            [w.per_step_ms(_sum([one.row for one in ones])) for w, ones in zip(run.windows, slower, strict=True)]
        )
        saved = Measured.over(
            [w.per_step_ms(sum(one.saved_us for one in ones)) for w, ones in zip(run.windows, slower, strict=True)]
        )
        if spent.lower_ms < self.least_ratio * run.period_ms or not worthwhile(saved.ms, run.period_ms):
            return None
        worst = max(slower[0], key=lambda one: one.saved_us)
        padded = -(-worst.size // self.best_multiple) * self.best_multiple
        reached = worst.row.ceiling_ratio or 0.0
        return self.of_kernels(
            metrics,
            run,
            subject=f"{worst.row.operator} {worst.row.input_shape}",
            summary=(
                f"Matrix products with a size of {worst.size} take {of_every_step(spent.ms, run)}. They reach "
                f"{percent(reached)} of the roofline, aligned products reach {percent(worst.peer_ratio)}."
            ),
            advice=(
                f"Pad {worst.size} to {padded}, a multiple of {self.best_multiple}: in the layer for a vocabulary or a "
                f"feature size, with drop_last=True for a batch. {worst.row.dtype} needs multiples of "
                f"{worst.multiple}. It is in {worst.row.operator} of {worst.row.input_shape}."
            ),
            evidence=(
                self.evidence("least_ratio", share_of_step(spent.ms, run), "misaligned products, share of the step"),
                Evidence(name="size", value=worst.size, limit=float(worst.multiple), source="NVIDIA: 16 bytes"),
                Evidence(name="reached share of the roofline", value=reached, unit="ratio"),
                Evidence(name="reached by aligned products", value=worst.peer_ratio, unit="ratio"),
            ),
            saved=saved,
        )


def _sum(rows: Sequence[RooflineRow]) -> float:
    return sum(row.device_us for row in rows)


def _products(window: DeviceWindow) -> list[tuple[RooflineRow, tuple[int, int, int], int]]:
    """Products with their sizes (rows, inner, columns) and the multiple that their type wants."""
    found = []
    rows = window.analysis.roofline.rows if window.analysis.roofline is not None else ()
    for row in rows:
        multiple = _MULTIPLES.get(row.dtype or "")
        matrices = [one for one in input_sizes(row.input_shape) if len(one) in (2, 3)][-2:]
        if multiple is None or row.operator.rpartition("::")[2] not in _PRODUCTS or len(matrices) != 2:
            continue
        if row.ceiling_ratio is not None and matrices[0][-1] == matrices[1][-2]:
            found.append((row, (matrices[0][-2], matrices[0][-1], matrices[1][-1]), multiple))
    return found


def _unfit(window: DeviceWindow) -> list[tuple[RooflineRow, int, int]]:
    """Products with columns that do not fit, and those of the same kind that share such a size."""
    products = _products(window)
    sizes = {(_batched(row), of_row[2]) for row, of_row, multiple in products if of_row[2] % multiple}
    found = []
    for row, of_row, multiple in products:
        shared = [size for size in reversed(of_row) if (_batched(row), size) in sizes and size % multiple]
        if shared:
            found.append((row, shared[0], multiple))
    return found


def _slow(window: DeviceWindow) -> list[_Slow] | None:
    """The products that do not fit beside those that do; None if there is none to compare any of them with."""
    unfit = _unfit(window)
    unfit_rows = {id(row) for row, _, _ in unfit}
    fit = [row for row, of_row, m in _products(window) if id(row) not in unfit_rows and not of_row[2] % m]
    found = []
    for row, size, multiple in unfit:
        peers = sorted(
            peer.ceiling_ratio
            for peer in fit
            if peer.ceiling_ratio
            and peer.dtype == row.dtype
            and _batched(peer) == _batched(row)
            and 0.25 <= peer.flops_per_call / max(row.flops_per_call, 1.0) <= 4.0
        )
        if peers:
            found.append(_Slow(row=row, size=size, multiple=multiple, peer_ratio=peers[(len(peers) - 1) // 2]))
    return found or None


def _batched(row: RooflineRow) -> bool:
    return "bmm" in row.operator
