"""What differs between two traces, per step."""

import msgspec

from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.model.trace.differences import (
    Change,
    ComparedTrace,
    DeviceChange,
    Differences,
    OperatorChange,
    Status,
    Unit,
)
from lightning_gpuprof.model.trace.host_factor import beyond_factor, factor_sentence, host_factor
from lightning_gpuprof.trace.analyses.comparison.per_step import PerStep, Total, Totals
from lightning_gpuprof.trace.linked import LinkedTrace

SAME_RATIO = 0.02
"""Windows of one run differ by about as much among themselves: what differs less is called the same."""

_NOTHING = Total()


MAX_ROWS = 30
"""Kernels, and operators, that are listed one by one."""


def differences_of(
    before: LinkedTrace, after: LinkedTrace, *, names: tuple[str, str] = ("before", "after")
) -> Differences:
    """Compare two traces.

    Nothing is refused: what speaks against a comparison is in :attr:`Differences.caveats`.

    Args:
        before: The trace to compare with.
        after: The trace to judge.
        names: What to call the two, e.g. their files.

    Returns:
        Microseconds per step if both traces have steps, else of the window; :data:`MAX_ROWS` kernels and operators at
        most.
    """
    unit: Unit = "step" if len(before.steps) and len(after.steps) else "window"
    old, new = PerStep(linked=before, unit=unit), PerStep(linked=after, unit=unit)
    of_kernels = _changes(old.kernels, new.kernels, old, new)
    of_operators = _operator_changes(old, new)
    ratio = host_factor([one.host for one in of_operators])
    compared = _compared(old, names[0]), _compared(new, names[1])
    return Differences(
        unit=unit,
        before=compared[0],
        after=compared[1],
        period_change_us=compared[1].period_us - compared[0].period_us,
        devices=_devices(old, new),
        phases=_phases(old, new),
        kernel_classes=_changes(old.kernel_classes(), new.kernel_classes(), old, new),
        kernel_total=_change("all", _sum(old.kernels), _sum(new.kernels), old, new),
        kernels=of_kernels[:MAX_ROWS],
        kernels_left_out=max(len(of_kernels) - MAX_ROWS, 0),
        operators=tuple(_beyond(one, ratio) for one in of_operators[:MAX_ROWS]),
        operators_left_out=max(len(of_operators) - MAX_ROWS, 0),
        caveats=(*_caveats(old, new, names), *([_host_side(ratio, names[1])] if ratio else [])),
        host_factor=ratio,
    )


def _beyond(one: OperatorChange, ratio: float | None) -> OperatorChange:
    return msgspec.structs.replace(one, host=msgspec.structs.replace(one.host, status=beyond_factor(one.host, ratio)))


def _host_side(ratio: float, name: str) -> str:
    return f"{capital(factor_sentence(ratio, f'in {name}'))}."


def _compared(side: PerStep, name: str) -> ComparedTrace:
    about, lengths = side.linked.trace.about, side.lengths_ns
    return ComparedTrace(
        name=name,
        gpu=_gpu(side.linked),
        rank=about.rank,
        world_size=about.world_size,
        steps=len(side.linked.steps),
        units=side.units,
        period_us=int(lengths.sum()) / 1000 / side.units,
        period_min_us=int(lengths.min()) / 1000 if len(lengths) else 0.0,
        period_max_us=int(lengths.max()) / 1000 if len(lengths) else 0.0,
    )


def _gpu(linked: LinkedTrace) -> str | None:
    """The models of the devices with work."""
    named = {linked.trace.product_of(device) for device in linked.device_rows}
    return ", ".join(sorted(name for name in named if name)) or None


def _sum(totals: Totals) -> Total:
    return Total(ns=sum(one.ns for one in totals.values()), count=sum(one.count for one in totals.values()))


def _phases(old: PerStep, new: PerStep) -> tuple[Change, ...]:
    """Empty if no range of either trace names a phase."""
    changes = _changes(old.phases(), new.phases(), old, new)
    return () if all(one.name == "none" for one in changes) else changes


def _changes(before: Totals, after: Totals, old: PerStep, new: PerStep) -> tuple[Change, ...]:
    found = [
        _change(name, before.get(name, _NOTHING), after.get(name, _NOTHING), old, new)
        for name in dict.fromkeys((*before, *after))
    ]
    return tuple(sorted(found, key=lambda one: (-abs(one.change_us), one.name)))


def _change(name: str, before: Total, after: Total, old: PerStep, new: PerStep) -> Change:
    before_us, after_us = before.ns / 1000 / old.units, after.ns / 1000 / new.units
    return Change(
        name=name,
        before_us=before_us,
        after_us=after_us,
        change_us=after_us - before_us,
        before_count=before.count / old.units,
        after_count=after.count / new.units,
        status=_status(before, after, before_us, after_us),
    )


def _status(before: Total, after: Total, before_us: float, after_us: float) -> Status:
    if not (before.count or before.ns):
        return "appeared" if after.count or after.ns else "same"
    if not (after.count or after.ns):
        return "vanished"
    if abs(after_us - before_us) <= SAME_RATIO * max(before_us, after_us):
        return "same"
    return "slower" if after_us > before_us else "faster"


def _operator_changes(old: PerStep, new: PerStep) -> tuple[OperatorChange, ...]:
    (host_before, device_before), (host_after, device_after) = old.operators(), new.operators()
    both = bool(len(old.linked.work) and len(new.linked.work))
    device = {one.name: one for one in _changes(device_before, device_after, old, new)} if both else {}
    found = [
        OperatorChange(host=host, device=device.get(host.name)) for host in _changes(host_before, host_after, old, new)
    ]

    def largest(one: OperatorChange) -> float:
        return -max(abs(one.host.change_us), abs(one.device.change_us) if one.device else 0.0)

    return tuple(sorted(found, key=lambda one: (largest(one), one.host.name)))


def _devices(old: PerStep, new: PerStep) -> tuple[DeviceChange, ...]:
    before, after = old.devices(), new.devices()
    if len(before) == len(after) == 1:  # a rank may run on another device than last time
        (old_name, old_times), (new_name, new_times) = *before.items(), *after.items()
        name = new_name if old_name == new_name else f"{old_name}, {new_name}"
        return (DeviceChange(device=name, before=old_times, after=new_times),)
    names = sorted({*before, *after})
    return tuple(DeviceChange(device=name, before=before.get(name), after=after.get(name)) for name in names)


def _caveats(old: PerStep, new: PerStep, names: tuple[str, str]) -> tuple[str, ...]:
    before, after = old.linked, new.linked
    found = []
    for side, linked in zip(names, (before, after), strict=True):
        if not len(linked.work):
            found.append(f"{side} has no device activity: devices and kernels cannot be compared.")
    if old.unit == "window":
        without = [name for name, linked in zip(names, (before, after), strict=True) if not len(linked.steps)]
        verb = "have" if len(without) == 2 else "has"
        found.append(
            f"{' and '.join(without)} {verb} no steps: values are per window, and depend on how much was recorded."
        )
    else:
        short = [f"{name} has {side.units}" for name, side in zip(names, (old, new), strict=True) if side.units < 3]
        if short:
            found.append(f"Few steps ({', '.join(short)}): small differences may be chance.")
    found += [
        f"{what}: {one} in {names[0]}, {other} in {names[1]}; {so}."
        for what, one, other, so in _unequal_properties(before, after)
        if one is not None and other is not None and one != other
    ]
    unknown = [
        name for name, linked in zip(names, (before, after), strict=True) if len(linked.work) and not _gpu(linked)
    ]
    if unknown:
        found.append(f"The GPU of {' and '.join(unknown)} is not known: the models may differ.")
    return tuple(found)


def _unequal_properties(before: LinkedTrace, after: LinkedTrace) -> list[tuple[str, object, object, str]]:
    """What should be the same in both: what it is, its values (None: not known), and what follows if they differ."""

    def value(linked: LinkedTrace, key: str) -> object:
        return linked.trace.about.values.get(key)

    def stacks(linked: LinkedTrace) -> str:
        return "yes" if any(name.lower() == "python_function" for name in linked.trace.categories) else "no"

    def memory(linked: LinkedTrace) -> str:
        return "yes" if value(linked, "profile_memory") else "no"

    def ranks(linked: LinkedTrace) -> object:
        return linked.trace.about.distributed.get("world_size", 1)  # one process on its own writes none

    inflated = "host times are inflated differently"
    return [
        ("Different GPUs", _gpu(before), _gpu(after), "this changes kernels and times"),
        ("Devices", len(before.device_rows) or None, len(after.device_rows) or None, "the work is split differently"),
        ("Ranks of the job", ranks(before), ranks(after), "communication is not comparable"),
        ("Different ranks", before.trace.about.rank, after.trace.about.rank, "ranks differ in what they wait for"),
        ("Python stacks were recorded", stacks(before), stacks(after), inflated),
        ("Memory was recorded", memory(before), memory(after), inflated),
        *(
            (what, value(before, key), value(after, key), "this may change kernels")
            for what, key in (("CUDA runtime", "cuda_runtime_version"), ("HIP runtime", "hip_runtime_version"))
        ),
    ]
