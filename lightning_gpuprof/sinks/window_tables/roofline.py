"""Tables of a window's MFU and of the operators' shares of the roofline."""

from msgspec.structs import replace

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trace.roofline import Rate, Roofline, RooflineRow
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import (
    FIGURE,
    GB_PER_S,
    SIGNIFICANT,
    TEXT,
    TFLOPS,
    US_AS_MS,
    Column,
    Table,
    facts,
    name,
)
from lightning_gpuprof.sinks.window_tables.operators import SHAPES
from lightning_gpuprof.sinks.window_tables.short_names import flops

TOP = 20
NAME_CELLS = 48
SHAPE_CELLS = 60

_MFU = "model FLOP/s over the data sheet's dense peak for the type"
_ABOVE_COMPUTE = "more FLOP/s than the device can do: FLOPs or type are wrong"
_ABOVE_MEMORY = "more than the memory bandwidth: the tensors were in the cache, or the bytes are wrong"
_LIMIT = (
    "the nearer of the type's peak and memory bandwidth; latency: below 60 % of both (Nsight Compute's guidance) by "
    "DRAM bytes that ncu measured, or in calls shorter than 10 µs"
)
_REDUCED = "the kernels do fewer FLOPs than the formula of a convolution counts, so no limit applies"


def flops_table(roofline: Roofline, limit: int = TOP) -> Table:
    """FLOPs, their rates and the MFU of the window.

    Args:
        roofline: Of the window.
        limit: Most rows, of which there are few.

    Returns:
        Names and values as text.
    """
    rows: list[tuple[str, str, str]] = []
    if roofline.flops_by_dtype:
        shapes = "of matrix products, convolutions and attention, from input shapes; a multiply-add counts as 2"
        if roofline.flops_per_step is not None:
            rows.append(("FLOPs per step", flops(roofline.flops_per_step), shapes))
        rows += [
            (f"of the window in {dtype or 'an unknown type'}", flops(amount), "the type of the computation")
            for dtype, amount in roofline.flops_by_dtype.items()
        ]
        rows += _rate(roofline.steps, "in steps", "the time of the steps; tracing inflates it, so the rate is too low")
        rows += _rate(roofline.busy, "while busy", "the time in which the device was busy")
        covered = "of their device time; below 100 %, the rates are that much too low"
        rows.append(("matrix kernels with known FLOPs", numbers.exact_percent(roofline.coverage_ratio), covered))
        if roofline.reduced_flops_ratio:
            rows.append(
                (
                    "FLOPs of Winograd and FFT convolutions",
                    numbers.exact_percent(roofline.reduced_flops_ratio),
                    _REDUCED,
                )
            )
        if roofline.faster_flops_ratio:
            rows.append(
                ("FLOPs that cannot be right", numbers.exact_percent(roofline.faster_flops_ratio), _ABOVE_COMPUTE)
            )
        rows.append(("device", plain.name(roofline.device or numbers.ABSENT, 60), ""))
        rows += [
            (f"peak in {one.dtype}", f"{TFLOPS(one.flops_per_s)} TFLOP/s", _source(one.measured))
            for one in roofline.ceilings
        ]
        if roofline.bytes_per_s is not None:
            rows.append(
                ("memory bandwidth", f"{GB_PER_S(roofline.bytes_per_s)} GB/s", _source(roofline.bytes_measured))
            )
        rows.append(("data sheet", plain.sentence(roofline.peak_source or "unknown device"), ""))
    absent = roofline.reason or "No matrix product, convolution or attention of the window has known FLOPs."
    return facts("FLOPs and MFU", rows, absent=absent, value=TEXT)


def _source(measured: bool) -> str:
    return "measured on the device" if measured else "dense, from the data sheet"


def roofline_table(roofline: Roofline, limit: int = TOP) -> Table:
    """The operators with the most device time, and how much of the roofline they reach.

    Args:
        roofline: Of the window.
        limit: Most rows.

    Returns:
        Most device time first; no rows without input shapes or device work.
    """
    rows = roofline.rows[:limit]
    rates: list[Column[RooflineRow]] = [
        Column(
            "TFLOP/s",
            lambda row: row.flops_per_s,
            TFLOPS,
            help="FLOPs (a lower bound) over device time; a multiply-add counts as 2",
        ),
        Column(
            "GB/s",
            lambda row: row.bytes_per_s,
            replace(GB_PER_S, unit=""),
            help="each input read and each output written once (or what ncu measured), over device time",
        ),
    ]
    intensity: Column[RooflineRow] = Column(
        "FLOP/B",
        lambda row: row.flops_per_byte,
        SIGNIFICANT,
        help="arithmetic intensity: FLOPs per byte moved, at most",
    )
    measured: Column[RooflineRow] = Column(
        "FLOP/B (ncu)", lambda row: row.measured_flops_per_byte, SIGNIFICANT, help="by the DRAM bytes that ncu measured"
    )
    is_measured = any(row.measured_flops_per_byte is not None for row in rows)
    return Table.of(
        "Operators under the roofline",
        rows,
        Column("operator", lambda row: row.operator, name(NAME_CELLS)),
        Column("inputs", lambda row: row.input_shape, name(SHAPE_CELLS), help=SHAPES),
        Column("type", lambda row: row.dtype or None, help="of the computation"),
        Column("device", lambda row: row.device_us, US_AS_MS, help="sum over all calls, without host-device copies"),
        *((intensity, measured, *rates) if is_measured else (*rates, intensity)),  # a narrow terminal drops the last
        Column(
            "limit",
            lambda row: row.limit,
            help=_LIMIT,
            hover=lambda row: f"nearer to {row.bound}" if row.limit == "latency" else "",
        ),
        Column(
            "reached",
            lambda row: _reached(row)[0],
            FIGURE,
            help="shortest possible device time over the actual time",
            hover=lambda row: _reached(row)[1],
        ),
        absent=roofline.reason,
    )


def _reached(row: RooflineRow) -> tuple[str, str]:
    if row.algorithm is not None:
        return row.algorithm, _REDUCED
    if row.faster_than == "compute":
        return "impossible", _ABOVE_COMPUTE
    if row.faster_than == "memory":
        return "cached", _ABOVE_MEMORY
    return numbers.exact_percent(row.ceiling_ratio), ""


def _rate(rate: Rate | None, when: str, time: str) -> list[tuple[str, str, str]]:
    if rate is None:
        return []
    rows = [
        (f"TFLOP/s {when}", TFLOPS(rate.flops_per_s), f"over {time}"),
        (f"MFU {when}", numbers.exact_percent(rate.mfu_ratio), f"{_MFU}; over {time}"),
    ]
    if rate.measured_ratio is not None:
        share = numbers.exact_percent(rate.measured_ratio)
        rows.append((f"of measured ceilings {when}", share, "instead of the data sheet's peaks"))
    return rows
