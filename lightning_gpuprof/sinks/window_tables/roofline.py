"""The roofline of a window flows in, tables of its MFU and of the operators' shares of the roofline flow out."""

from __future__ import annotations

from collections.abc import Callable

from lightning_gpuprof.model.trace.roofline import Rate, Roofline, RooflineRow
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table
from lightning_gpuprof.sinks.window_tables.flops import flops, gb_per_s, tflops_per_s

_Add = Callable[[str, str, str], None]

TOP = 20
NAME_CELLS = 30
SHAPE_CELLS = 44

_MFU = "FLOPs that the model asks for over the dense peak of their type on the data sheet"
_ABOVE_COMPUTE = "more FLOP/s than the device can do: the FLOPs, or the type they are computed in, are wrong"
_ABOVE_MEMORY = (
    "more bytes per second than the memory gives: the tensors were still in the cache, or the bytes are wrong"
)
_REDUCED = "the kernels do fewer FLOPs than the formula of a convolution counts, so they are held against no limit"


def flops_table(roofline: Roofline) -> Table:
    """FLOPs, their rates and the MFU of the window."""
    rows: list[tuple[Cell, ...]] = []

    def add(what: str, value: str, term: str = "") -> None:
        rows.append((Cell(text=what, term=term), Cell(text=value)))

    if roofline.flops_by_dtype:
        if roofline.flops_per_step is not None:
            add(
                "FLOPs per step",
                flops(roofline.flops_per_step),
                "of matrix products, convolutions and attention, by the shapes of inputs; a multiply-add counts 2",
            )
        for dtype, amount in roofline.flops_by_dtype.items():
            add(f"of the window in {dtype or 'an unknown type'}", flops(amount), "the type that is computed in")
        _add_rate(add, roofline.steps, "in steps", "the time of the steps; profiling makes it longer, and this lower")
        _add_rate(
            add,
            roofline.busy,
            "while busy",
            "the time in which the device worked: what the kernels reach without idling",
        )
        add(
            "matrix kernels with known FLOPs",
            numbers.percent(roofline.coverage_ratio),
            "of their device time; the rates are about that much too low where it is below 100 %",
        )
        if roofline.reduced_flops_ratio:
            add("FLOPs of Winograd and FFT convolutions", numbers.percent(roofline.reduced_flops_ratio), _REDUCED)
        if roofline.faster_flops_ratio:
            add("FLOPs that cannot be right", numbers.percent(roofline.faster_flops_ratio), _ABOVE_COMPUTE)
        add("device", plain.name(roofline.device or numbers.ABSENT, 60))
        for ceiling in roofline.ceilings:
            add(f"peak in {ceiling.dtype}", f"{tflops_per_s(ceiling.flops_per_s)} TFLOP/s", _source(ceiling.measured))
        if roofline.bytes_per_s is not None:
            add("memory bandwidth", f"{gb_per_s(roofline.bytes_per_s)} GB/s", _source(roofline.bytes_measured))
        add("data sheet", plain.sentence(roofline.peak_source or "this device is in no table of ours"))
    return Table(
        title="FLOPs and MFU",
        columns=(Column(title="what"), Column(title="value")),
        rows=tuple(rows),
        absent=roofline.reason or "No matrix product, convolution or attention of the window has known FLOPs.",
    )


def _source(measured: bool) -> str:
    return "measured on the device" if measured else "dense, from the data sheet"


def _add_rate(add: _Add, rate: Rate | None, when: str, time: str) -> None:
    if rate is None:
        return
    add(f"TFLOP/s {when}", tflops_per_s(rate.flops_per_s), f"over {time}")
    add(f"MFU {when}", numbers.percent(rate.mfu_ratio), f"{_MFU}; over {time}")
    if rate.measured_ratio is not None:
        add(f"of measured ceilings {when}", numbers.percent(rate.measured_ratio), "instead of the data sheet's peaks")


def roofline_table(roofline: Roofline, limit: int = TOP) -> Table:
    """The operators with the most device time, and how much of the roofline they reach.

    Args:
        roofline: The roofline.
        limit: Most rows.
    """
    return Table(
        title="Operators under the roofline",
        columns=(
            Column(title="operator"),
            Column(title="inputs", term="shapes of the tensors; () has no dimensions, a list is in brackets"),
            Column(title="type", term="what is computed in"),
            Column(
                title="device", unit="ms", term="sum over all calls, without copies from and to the host", numeric=True
            ),
            Column(
                title="TFLOP/s", term="lower bound of FLOPs over device time; a multiply-add counts 2", numeric=True
            ),
            Column(title="GB/s", term="each input read and each output written once, over device time", numeric=True),
            Column(title="FLOP/B", term="arithmetic intensity: FLOPs per byte that must be moved", numeric=True),
            Column(title="limit", term="what bounds it at best: the peak of the type or the memory's bandwidth"),
            Column(title="reached", term="least time that the device needs over the time it took", numeric=True),
        ),
        rows=tuple(_cells(row) for row in roofline.rows[:limit]),
        absent=roofline.reason,
    )


def _cells(row: RooflineRow) -> tuple[Cell, ...]:
    return (
        Cell(text=plain.name(row.operator, NAME_CELLS)),
        Cell(text=plain.name(row.input_shape, SHAPE_CELLS)),
        Cell(text=row.dtype or numbers.ABSENT),
        Cell(text=numbers.fixed(row.device_us / 1000)),
        Cell(text=tflops_per_s(row.flops_per_s)),
        Cell(text=gb_per_s(row.bytes_per_s)),
        Cell(text=numbers.significant(row.flops_per_byte)),
        Cell(text=row.bound or numbers.ABSENT),
        _reached(row),
    )


def _reached(row: RooflineRow) -> Cell:
    if row.algorithm is not None:
        return Cell(text=row.algorithm, term=_REDUCED)
    if row.faster_than == "compute":
        return Cell(text="impossible", term=_ABOVE_COMPUTE)
    if row.faster_than == "memory":
        return Cell(text="cached", term=_ABOVE_MEMORY)
    return Cell(text=numbers.percent(row.ceiling_ratio))
