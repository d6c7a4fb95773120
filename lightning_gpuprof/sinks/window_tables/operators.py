"""Tables of a window's operators: by type, in detail and by input shapes."""

from typing import NamedTuple

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.operators import OperatorDetail, Operators, OperatorShapes
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, PERCENT, TFLOPS, US, US_AS_MS, Column, Table, bar, name

TOP = 20
NAME_CELLS = 40
SHAPE_CELLS = 60

_INFLATED = "inflated by tracing, short operators most: compare them, do not add them up"
_SELF = f"self time (nested operators excluded); {_INFLATED}"
SHAPES = "shapes of the tensors; () is a scalar, a list is in brackets"
_SUMMED = "durations of kernels, copies and memsets, also concurrent ones, added up"
_DEVICE_SELF = f"{_SUMMED}; launched by the operator itself"
_TOTAL = "nested operators included"
_AVERAGE = "per call, nested operators included"
_MODULE_CELLS = 32
_MODULE = "with most of the self time, + others; of a backward that of its forward"
_PHASE = "optimizer includes clearing and clipping gradients"


def operator_types_by_device_time(operators: Operators) -> Table:
    """Types of operators with the most device time; the rest in one row."""
    total_us = operators.device_us or 0.0
    rows = [
        _Share(row.type, row.occurrences, row.device_self_us, row.device_average_us)
        for row in operators.types
        if row.device_self_us
    ]
    outside_us = total_us - (operators.attributed_device_us or 0.0)
    outside = rows and outside_us > 0 and not operators.filter
    return _types(
        "device",
        "all device work of the window",
        f"{_SUMMED}; only what operators of the type launched themselves",
        rows,
        [_Share("outside operators", None, outside_us)] if outside else [],
        total_us,
        _absent(operators, on_device=True),
    )


def _absent(operators: Operators, *, on_device: bool = False, with_shapes: bool = False) -> str:
    if not operators.calls:
        return "The window has no operators."
    if with_shapes and operators.shapes is None:
        return "The shapes of inputs were not recorded (record_shapes)."
    what = f"No operator whose name matches {operators.filter!r}" if operators.filter else "No operator of the window"
    if on_device:
        return f"{what} launched anything on the device."
    return f"{what} has recorded inputs." if with_shapes else f"{what} is in the window."


def operator_types_by_host_time(operators: Operators) -> Table:
    """Types of operators with the most host time of their own; the rest in one row."""
    rows = [
        _Share(row.type, row.occurrences, row.host_self_us, row.host_average_us)
        for row in sorted(operators.types, key=lambda row: -row.host_self_us)
    ]
    return _types("host", "all operators", _SELF, rows, [], operators.host_self_us, _absent(operators))


def operators_by_device_time(operators: Operators, limit: int = TOP) -> Table:
    """Operators with the most device time of their own.

    Args:
        operators: The operators.
        limit: Most rows.

    Returns:
        Total and self time in ms, averages in µs; operators that launched nothing are left out.
    """
    total = operators.device_us
    return Table.of(
        "Operators by device time",
        [row for row in operators.operators if row.device_total_us],
        *_NAMED,
        *_DEVICE_TIMES,
        Column(
            "share",
            lambda row: (row.device_self_us or 0.0) / total if total else None,
            PERCENT,
            help="self time, share of the window's device time",
        ),
        Column(
            "launched", lambda row: row.device_work, COUNT, help="kernels, copies and memsets, also by nested operators"
        ),
        *_module(operators),
        absent=_absent(operators, on_device=True),
        limit=limit,
    )


def operators_by_host_time(operators: Operators, limit: int = TOP) -> Table:
    """Operators with the most host time of their own.

    Args:
        operators: The operators.
        limit: Most rows.

    Returns:
        Total and self time in ms, averages in µs, all inflated by tracing.
    """
    total = operators.host_self_us
    return Table.of(
        "Operators by host time",
        sorted(operators.operators, key=lambda row: -row.host_self_us),
        *_NAMED,
        *_HOST_TIMES,
        Column(
            "share",
            lambda row: row.host_self_us / total if total else None,
            PERCENT,
            help="self time, share of all operators of the window",
        ),
        *_module(operators),
        absent=_absent(operators),
        limit=limit,
    )


def operators_by_time(operators: Operators, limit: int = TOP) -> Table:
    """Operators with the most time of their own: on the device, else on the host.

    Args:
        operators: The operators.
        limit: Most rows.

    Returns:
        That of :func:`operators_by_device_time` if there was any device work.
    """
    by_time = operators_by_host_time if operators.device_us is None else operators_by_device_time
    return by_time(operators, limit)


def host_time_beside_device(operators: Operators, limit: int = TOP) -> tuple[Table, ...]:
    """Operators by host time, where :func:`operators_by_time` has them by device time.

    Args:
        operators: The operators.
        limit: Most rows.

    Returns:
        One table; empty if there was no device work.
    """
    return () if operators.device_us is None else (operators_by_host_time(operators, limit),)


def operators_by_shape(operators: Operators, limit: int = TOP) -> Table:
    """Operators by shape of their inputs, those with the most time of their own: on the device, else on the host.

    Args:
        operators: The operators.
        limit: Most rows.

    Returns:
        Totals in ms, averages in µs; no rows if shapes were not recorded.
    """
    on_device = operators.device_us is not None
    rate = "FLOPs (a lower bound by formula, a multiply-add is 2) over device time"
    return Table.of(
        f"Operators by input shape and {'device' if on_device else 'host'} time",
        (operators.shapes or ())[:limit],
        _NAMED[0],
        Column("inputs", lambda row: row.input_shape, name(SHAPE_CELLS), help=SHAPES),
        Column("type", lambda row: row.dtype, name(SHAPE_CELLS), help="of the tensors' elements"),
        *_NAMED[1:],
        *(_DEVICE_TIMES if on_device else _HOST_TIMES),
        Column("TFLOP/s", lambda row: row.flops_per_s, TFLOPS, help=rate),
        absent=_absent(operators, with_shapes=True),
    )


class _Share(NamedTuple):
    """Time of a type of operators, of several, or of none."""

    type: str
    calls: int | None
    spent_us: float
    average_us: float | None = None


def _types(
    side: str, of: str, help: str, rows: list[_Share], outside: list[_Share], total_us: float, absent: str
) -> Table:
    rest = rows[TOP:]
    more = _Share(
        f"{numbers.count(len(rest))} more", sum(row.calls or 0 for row in rest), sum(r.spent_us for r in rest)
    )
    foot = [*([more] if rest else []), *outside]

    def share(row: _Share) -> float | None:
        return row.spent_us / total_us if total_us else None

    return Table.of(
        f"Operator types by {side} time",
        [*rows[:TOP], *foot],
        Column("type", lambda row: row.type, name(NAME_CELLS), help="the operator's name without its namespace"),
        bar(share),
        Column("calls", lambda row: row.calls, COUNT, help="in the window"),
        Column(side, lambda row: row.spent_us, US_AS_MS, help=help),
        Column("average", lambda row: row.average_us, US, help="per call"),
        Column("share", share, PERCENT, help=f"of the time of {of}"),
        absent=absent,
        foot=len(foot),
    )


_NAMED: tuple[Column[OperatorDetail | OperatorShapes], ...] = (
    Column("operator", lambda row: row.operator, name(NAME_CELLS)),
    Column("phase", lambda row: words_of(row.phase), help=_PHASE),
    Column("calls", lambda row: row.occurrences, COUNT, help="in the window"),
)
_DEVICE_TIMES: tuple[Column[OperatorDetail | OperatorShapes], ...] = (
    Column("self", lambda row: row.device_self_us or 0.0, US_AS_MS, help=_DEVICE_SELF),
    Column("total", lambda row: row.device_total_us or 0.0, US_AS_MS, help=_TOTAL),
    Column("average", lambda row: row.device_average_us, US, help=_AVERAGE),
)
_HOST_TIMES: tuple[Column[OperatorDetail | OperatorShapes], ...] = (
    Column("self", lambda row: row.host_self_us, US_AS_MS, help=_SELF),
    Column("total", lambda row: row.host_total_us, US_AS_MS, help=_TOTAL),
    Column("average", lambda row: row.host_average_us, US, help=_AVERAGE),
)


def _module(operators: Operators) -> tuple[Column[OperatorDetail], ...]:
    """The module of each operator; nothing where none is known."""

    def named(row: OperatorDetail) -> str | None:
        more = f" +{numbers.count(row.other_modules)}" if row.other_modules else ""
        return row.module and plain.name(row.module, _MODULE_CELLS) + more

    known = any(row.module is not None for row in operators.operators)
    return (Column("module", named, help=_MODULE),) if known else ()
