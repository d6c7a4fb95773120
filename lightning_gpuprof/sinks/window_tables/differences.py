"""The differences between two traces flow in, tables for people flow out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lightning_gpuprof.model.phases import PHASE_TERMS
from lightning_gpuprof.model.trace.differences import Change, ComparedTrace, DeviceTimes, Differences
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table, sentence_table
from lightning_gpuprof.sinks.window_tables import kernel_text

NAME_LIMIT = 38
"""Characters of a name, so that the numbers beside it fit 100 columns."""

KERNEL_LIMIT = 70
"""The same for a kernel, on two lines: what tells torch's templates apart stands far behind in their names."""

_PHASE_TERMS: Mapping[str, str] = {
    **{str(phase): term for phase, term in PHASE_TERMS.items()},
    "none": "no range whose name tells a phase is open",
}


def compared_trace_table(differences: Differences) -> Table:
    """The two traces."""
    return Table(
        title="Compared traces",
        columns=(
            Column(title=""),
            Column(title="trace"),
            Column(title="GPU"),
            Column(title="rank"),
            Column(title="steps", numeric=True),
            Column(title=differences.unit, unit="ms", term="mean", numeric=True),
            Column(title="min", unit="ms", numeric=True),
            Column(title="max", unit="ms", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=which),
                Cell(text=plain.name(one.name, 30)),
                Cell(text=numbers.ABSENT if one.gpu is None else plain.name(one.gpu, 24)),
                Cell(text=_rank(one)),
                Cell(text=numbers.count(one.steps)),
                Cell(text=numbers.fixed(one.period_us / 1e3)),
                Cell(text=numbers.fixed(one.period_min_us / 1e3)),
                Cell(text=numbers.fixed(one.period_max_us / 1e3)),
            )
            for which, one in (("before", differences.before), ("after", differences.after))
        ),
        absent="No traces were compared.",
    )


def device_change_table(differences: Differences) -> Table:
    """Busy, idle and communication of each device before and after."""
    rows = []
    for device in differences.devices:
        for what, term, field in _DEVICE_ROWS:
            before, after = _value(device.before, field), _value(device.after, field)
            known = before is not None and after is not None
            change = after - before if before is not None and after is not None else None
            rows.append(
                (
                    Cell(text=plain.name(device.device, 16)),
                    Cell(text=what, term=term),
                    Cell(text=_ms(before)),
                    Cell(text=_ms(after)),
                    Cell(text=_signed_ms(change)),
                    Cell(text=_percent(before, after) if known else numbers.ABSENT),
                )
            )
    return Table(
        title=f"Devices per {differences.unit}",
        columns=(Column(title="device"), Column(title="time"), *_change_columns()),
        rows=tuple(rows),
        absent="Neither trace holds device work.",
    )


_DEVICE_ROWS = (
    ("busy", "union of kernels and copies", "busy_us"),
    ("idle", "the rest", "idle_us"),
    ("computation", "union of kernels that do not communicate", "computation_us"),
    ("communication", "union of those that do", "communication_us"),
    ("exposed", "communication that no computation covers", "exposed_us"),
)


def phase_change_table(differences: Differences) -> Table:
    """Phases of the host before and after."""
    return change_table(
        f"Phases per {differences.unit}", "phase", differences.phases, 0, "No range of the traces tells a phase."
    )


def kernel_class_change_table(differences: Differences) -> Table:
    """Classes of kernels before and after, with their sum."""
    rows = (*differences.kernel_classes, differences.kernel_total) if differences.kernel_classes else ()
    return change_table(
        f"Classes of kernels per {differences.unit}", "class", rows, 0, "Neither trace holds device work."
    )


def kernel_change_table(differences: Differences) -> Table:
    """Kernels and copies of the same name before and after."""
    return change_table(
        f"Kernels per {differences.unit}",
        "kernel",
        differences.kernels,
        differences.kernels_left_out,
        "Neither trace holds device work.",
    )


def operator_change_table(differences: Differences) -> Table:
    """Operators before and after: host time without inner operators, and device time."""
    left_out = f" ({differences.operators_left_out} more)" if differences.operators_left_out else ""
    return Table(
        title=f"Operators per {differences.unit}{left_out}",
        columns=(
            Column(title="operator"),
            Column(title="host", unit="ms", term="before: own time, without inner operators", numeric=True),
            Column(title="after", unit="ms", numeric=True),
            Column(title="change", unit="ms", numeric=True),
            Column(title="device", unit="ms", term="before: of the work that it launched itself", numeric=True),
            Column(title="after", unit="ms", numeric=True),
            Column(title="change", unit="ms", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(one.host.name, NAME_LIMIT)),
                *_three(one.host),
                *(_three(one.device) if one.device else (Cell(text=numbers.ABSENT),) * 3),
            )
            for one in differences.operators
        ),
        absent="Neither trace holds operators.",
    )


def caveat_table(differences: Differences) -> Table:
    """Why the traces are not fully comparable."""
    return sentence_table("Caveats", differences.caveats, "Nothing speaks against comparing these traces.")


def change_table(title: str, what: str, changes: Sequence[Change], left_out: int, absent: str) -> Table:
    """Times before and after.

    Args:
        title: Of the table.
        what: One row is: ``kernel``, ``phase``, ``class`` or ``operator``.
        changes: The rows.
        left_out: How many more there are.
        absent: Stands in place of a table without rows.
    """
    more = f" ({left_out} more)" if left_out else ""
    return Table(
        title=f"{title}{more}",
        columns=(
            Column(title=what),
            *_change_columns(),
            Column(title="count", term="before and after", numeric=True),
            Column(title="is", term="same: less than 2 % apart"),
        ),
        rows=tuple(
            (
                _named(what, one.name),
                *_three(one),
                Cell(text=_percent(one.before_us, one.after_us)),
                Cell(text=_counts(one)),
                Cell(text=one.status),
            )
            for one in changes
        ),
        absent=absent,
    )


def _named(what: str, name: str) -> Cell:
    if what == "kernel":
        return kernel_text.cell(name, KERNEL_LIMIT)
    if what == "phase":
        return Cell(text=name, term=_PHASE_TERMS.get(name, ""))
    return Cell(text=plain.name(name, NAME_LIMIT))


def _change_columns() -> tuple[Column, ...]:
    return (
        Column(title="before", unit="ms", numeric=True),
        Column(title="after", unit="ms", numeric=True),
        Column(title="change", unit="ms", term="above 0: slower", numeric=True),
        Column(title="", term="change over before", numeric=True),
    )


def _three(one: Change) -> tuple[Cell, Cell, Cell]:
    return Cell(text=_ms(one.before_us)), Cell(text=_ms(one.after_us)), Cell(text=_signed_ms(one.change_us))


def _value(times: DeviceTimes | None, field: str) -> float | None:
    value: float | None = None if times is None else getattr(times, field)
    return value


def _ms(us: float | None) -> str:
    return numbers.ABSENT if us is None else numbers.fixed(us / 1e3)


def _signed_ms(us: float | None) -> str:
    if us is None or us == 0:
        return _ms(us)
    return f"{'+' if us > 0 else '-'}{numbers.fixed(abs(us) / 1e3)}"


def _percent(before: float | None, after: float | None) -> str:
    if before is None or after is None or before <= 0 or after <= 0:
        return numbers.ABSENT
    share = (after - before) / before
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{numbers.percent(abs(share))}"


def _counts(one: Change) -> str:
    if not one.before_count and not one.after_count:
        return numbers.ABSENT
    before, after = _often(one.before_count), _often(one.after_count)
    return before if before == after else f"{before} to {after}"


def _often(count: float) -> str:
    return numbers.count(int(count)) if count.is_integer() else numbers.significant(count)


def _rank(one: ComparedTrace) -> str:
    if one.rank is None:
        return numbers.ABSENT
    return str(one.rank) if one.world_size is None else f"{one.rank} of {one.world_size}"
