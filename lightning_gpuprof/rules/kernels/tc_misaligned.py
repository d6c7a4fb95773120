"""Finds products whose sizes do not fit tensor cores, and that are slower than products of the run that do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.trace.roofline import RooflineRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import (
    BaseRule,
    MissingSignal,
    gain,
    severity,
    threshold,
    worthwhile,
)
from lightning_gpuprof.rules.kernels.device_kernels import DeviceWindow, Measured, device_run, input_sizes
from lightning_gpuprof.rules.wording import millis, percent

_MULTIPLES = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""16 bytes of elements. NVIDIA, Matrix Multiplication Background, "Requirements to use Tensor Cores"."""

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmm_", "linear"})


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
class TcMisaligned(BaseRule):
    """Products have a size that is not a multiple of what tensor cores load at once, and are slower for it.

    ## What it means

    Tensor cores load 16 bytes at a time: rows of 8 elements in half precision, 4 in TF32, 16 in fp8 and int8. If a row
    is not a multiple of that, the library pads or takes slower kernels. A vocabulary of 50,257 is the usual case.

    ## How it is measured

    In the roofline of trace windows with shapes: products (`mm`, `addmm`, `bmm`) whose number of columns is no such
    multiple, and products of the same kind that share this size. They must take at least a tenth of the untraced step
    and reach less than 80 % of the share of the roofline that products of the same kind and type with a quarter to four
    times their FLOPs reach whose sizes fit. The gain is what these would need less. Only the 20 longest rows are known.

    ## When it is wrong

    - Without products that fit to compare with it is not evaluated: it does not guess what alignment would gain.
    - A number of tokens or samples that is no multiple matters less than one of features, and is left out unless it is
      a number of columns.
    - It is silent where the host sets the pace.

    ## What to do

    Pad the named size to the printed one: `nn.Linear(…, 50304)` for 50,257 words, a hidden size, a batch with
    `drop_last=True`.

    ## Example

    "Pad 50257 to 50304: products with 50,257 columns reach 21 % of the roofline, others 58 %".
    """

    id = "tc-misaligned"

    least_ratio: float = threshold(0.10, source="the method: a tenth of the step")
    slower_ratio: float = threshold(0.80, source="heuristic")
    best_multiple: int = threshold(64, source="NVIDIA: 128 bytes on A100, 64 elements of half precision")

    def check(self, metrics: Metrics) -> Finding | None:
        """Judge the products of all windows."""
        run = device_run(metrics)
        if run is None:
            return None
        if any(w.analysis.roofline is None or not w.analysis.roofline.rows for w in run.windows):
            raise MissingSignal("a trace window holds no product of known shape: TraceConfig(record_shapes=True)")
        if run.host_sets_the_pace:
            return None
        unfit = [[row for row, _, _ in _unfit(window)] for window in run.windows]
        time = Measured.over([w.per_step_ms(_sum(rows)) for w, rows in zip(run.windows, unfit, strict=True)])
        if time.lower_ms < self.least_ratio * run.period_ms:
            return None
        slow = [_slow(window) for window in run.windows]
        if any(found is None for found in slow):
            raise MissingSignal("no products whose sizes fit are in the windows to compare with")
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
        return self.finding(
            severity=severity(saved.lower_ms / run.period_ms, metrics.steps.steady_count),
            subject=f"{worst.row.operator} {worst.row.input_shape}",
            summary=(
                f"Products with a size that is no multiple of {worst.multiple} take {millis(spent.ms)} of a step of "
                f"{millis(run.period_ms)} ({percent(min(1.0, spent.ms / run.period_ms))}). With {worst.size:,} they "
                f"reach {percent(reached)} of the roofline, products that fit {percent(worst.peer_ratio)}."
            ),
            advice=(
                f"Pad {worst.size} to {padded}, a multiple of {self.best_multiple}: it is in {worst.row.operator} of "
                f"{worst.row.input_shape} ({worst.row.dtype}). A vocabulary or a feature size is padded in the layer, "
                "a batch by drop_last=True."
            ),
            evidence=(
                self.evidence(
                    "least_ratio", min(1.0, spent.ms / run.period_ms), "misaligned products, share of the step"
                ),
                Evidence(name="size", value=worst.size, limit=float(worst.multiple), source="NVIDIA: 16 bytes"),
                Evidence(name="reached share of the roofline", value=reached, unit="ratio"),
                Evidence(name="reached by products that fit", value=worst.peer_ratio, unit="ratio"),
                Evidence(name="period", value=run.period_ms, unit="ms"),
            ),
            gain=gain(saved.ms, saved.lower_ms, run.period_ms),
            confidence=0.6,
            explains=claims.MATRIX_KERNELS,
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
