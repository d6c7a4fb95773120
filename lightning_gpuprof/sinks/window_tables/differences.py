"""The tables of the differences between two traces."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import PHASE_TERMS, words_of
from lightning_gpuprof.model.trace.differences import Change, ComparedTrace, DeviceTimes, Differences, OperatorChange
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, US_AS_MS, Column, Format, R, Table, name, sentence_table
from lightning_gpuprof.sinks.window_tables import short_names

NAME_LIMIT = 60
"""Characters of a name."""

KERNEL_LIMIT = 70
"""The same for a kernel: what tells torch's templates apart stands far behind in their names."""

_PHASE_TERMS: Mapping[str, str] = {
    **{str(phase): term for phase, term in PHASE_TERMS.items()},
    "none": "outside of ranges that name a phase",
}


def compared_trace_table(differences: Differences) -> Table:
    """The two traces."""

    def rank(one: ComparedTrace) -> str | int | None:
        return f"{one.rank} of {one.world_size}" if one.rank is not None and one.world_size else one.rank

    return Table.of(
        "Compared traces",
        (("before", differences.before), ("after", differences.after)),
        Column("", lambda row: row[0]),
        Column("trace", lambda row: row[1].name, name(30)),
        Column("GPU", lambda row: row[1].gpu, name(24)),
        Column("rank", lambda row: rank(row[1])),
        Column("steps", lambda row: row[1].steps, COUNT),
        Column(differences.unit, lambda row: row[1].period_us, US_AS_MS, help="mean"),
        Column("min", lambda row: row[1].period_min_us, US_AS_MS),
        Column("max", lambda row: row[1].period_max_us, US_AS_MS),
        absent="No traces were compared.",
    )


def device_change_table(differences: Differences) -> Table:
    """Busy, idle and communication of each device before and after."""

    def value(times: DeviceTimes | None, field: str) -> float | None:
        return None if times is None else getattr(times, field)

    return Table.of(
        f"Devices per {differences.unit}",
        [
            _DeviceRow(device.device, what, help, value(device.before, field), value(device.after, field))
            for device in differences.devices
            for what, help, field in _DEVICE_ROWS
        ],
        Column("device", lambda row: row.device, name(16)),
        Column("time", lambda row: row.what, hover=lambda row: row.help),
        *_TIMES,
        _RELATIVE,
        absent="Neither trace has device activity.",
    )


_DEVICE_ROWS = (
    ("busy", "kernels and copies; overlaps count once", "busy_us"),
    ("idle", "the rest", "idle_us"),
    ("computation", "all kernels except communication", "computation_us"),
    ("communication", "NCCL and RCCL kernels", "communication_us"),
    ("exposed", "communication not covered by computation", "exposed_us"),
)


def phase_change_table(differences: Differences) -> Table:
    """Phases of the host before and after."""
    return change_table(
        f"Phases per {differences.unit}", "phase", differences.phases, 0, "No named range marks a phase."
    )


def kernel_class_change_table(differences: Differences) -> Table:
    """Classes of kernels before and after, with their sum."""
    rows = (*differences.kernel_classes, differences.kernel_total) if differences.kernel_classes else ()
    return change_table(
        f"Classes of kernels per {differences.unit}", "class", rows, 0, "Neither trace has device activity."
    )


def kernel_change_table(differences: Differences) -> Table:
    """Kernels and copies of the same name before and after."""
    return change_table(
        f"Kernels per {differences.unit}",
        "kernel",
        differences.kernels,
        differences.kernels_left_out,
        "Neither trace has device activity.",
    )


def operator_change_table(differences: Differences) -> Table:
    """Operators before and after: host time without inner operators, and device time."""
    left_out = f" ({differences.operators_left_out} more)" if differences.operators_left_out else ""
    return Table.of(
        f"Operators per {differences.unit}{left_out}",
        differences.operators,
        Column("operator", lambda one: one.host.name, name(NAME_LIMIT)),
        *_HOST,
        *_DEVICE,
        absent="Neither trace has operators.",
    )


def caveat_table(differences: Differences) -> Table:
    """Why the traces are not fully comparable."""
    return sentence_table("Caveats", differences.caveats, "No caveats: these traces are comparable.")


def change_table(title: str, what: str, changes: Sequence[Change], left_out: int, absent: str) -> Table:
    """Times before and after.

    Args:
        title: Of the table.
        what: One row is: ``kernel``, ``phase``, ``class`` or ``operator``.
        changes: The rows.
        left_out: How many more there are.
        absent: Stands in place of a table without rows.

    Returns:
        Rows in the order of ``changes``, times in ms; ``left_out`` is in the title.
    """
    more = f" ({left_out} more)" if left_out else ""

    def counts(one: Change) -> str:
        before, after = _often(one.before_count), _often(one.after_count)
        return numbers.ABSENT if before == after == "0" else before if before == after else f"{before} to {after}"

    named: Column[Change] = Column(what, lambda one: one.name, name(NAME_LIMIT))
    if what == "kernel":
        named = short_names.column(KERNEL_LIMIT)
    elif what == "phase":
        named = Column(what, lambda one: words_of(one.name), hover=lambda one: _PHASE_TERMS.get(one.name, ""))
    return Table.of(
        f"{title}{more}",
        changes,
        named,
        *_TIMES,
        _RELATIVE,
        Column("count", counts, FIGURE, help="before and after"),
        Column("status", lambda one: one.status, help="same: less than 2 % apart"),
        absent=absent,
    )


def _often(count: float) -> str:
    return numbers.count(int(count)) if count.is_integer() else numbers.significant(count)


class _DeviceRow(NamedTuple):
    device: str
    what: str
    help: str
    before_us: float | None
    after_us: float | None


class _Times(Protocol):
    @property
    def before_us(self) -> float | None: ...
    @property
    def after_us(self) -> float | None: ...


def _times(of: Callable[[R], _Times | None], before: str, after: str) -> tuple[Column[R], ...]:
    """Columns of the time before, after and what it changed by."""

    def change_us(row: R) -> float | None:
        found = of(row)
        if found is None or found.before_us is None or found.after_us is None:
            return None
        return found.after_us - found.before_us

    return (
        Column(before, lambda row: getattr(of(row), "before_us", None), US_AS_MS),
        Column(after, lambda row: getattr(of(row), "after_us", None), US_AS_MS),
        Column("change", change_us, _CHANGE, help="+ is slower"),
    )


_CHANGE = Format(lambda us: numbers.signed(us / 1e3, numbers.fixed), "ms")


def _relative(row: _Times) -> float | None:
    return (row.after_us - row.before_us) / row.before_us if row.before_us and row.after_us else None


_HOST: tuple[Column[OperatorChange], ...] = _times(lambda one: one.host, "host before", "after")
_DEVICE: tuple[Column[OperatorChange], ...] = _times(lambda one: one.device, "device before", "after")
_TIMES: tuple[Column[_Times], ...] = _times(lambda row: row, "before", "after")
_RELATIVE: Column[_Times] = Column("", _relative, Format(numbers.signed_percent), help="relative to before")
