"""Kernels and operators per traced step of two runs, before and after."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lightning_gpuprof.model.comparison import WindowChanges
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.differences import Change, Status
from lightning_gpuprof.model.trace.host_factor import beyond_factor, factor_sentence, host_factor
from lightning_gpuprof.model.window import WindowFacts

SAME_RATIO = 0.02
"""As between two traces: windows of one run differ by about as much among themselves. Work that was launched before a
window comes on top."""

FEW_STEPS = 3
ROWS = 30
SLOW = "slow step"
"""Begins the reason of windows that a slow step opened: they do not stand for the run."""

Row = tuple[str, int, float]
"""Name, count, microseconds."""


class _Side(msgspec.Struct, frozen=True, kw_only=True):
    """One run's totals of one table."""

    totals: Mapping[str, tuple[int, float]]
    """Name → count, microseconds."""
    steps: int
    whole: bool
    """All names are there, so that one that is not did not occur."""
    partly: frozenset[str] = frozenset()
    """Names that only some windows' tables reach, where tables are not whole: their totals are not known."""
    foreign_ratio: float = 0.0
    """Share of the device work that was launched before the windows, and so is too much in the totals."""


def window_changes(before: Report, after: Report) -> WindowChanges | None:
    """Hold the windows of two runs against each other; those of one run are added up.

    Args:
        before: Report of the earlier run.
        after: Report of the later run.

    Returns:
        None unless both have a window with steps.
    """
    sides = [_usable(report.windows) for report in (before, after)]
    if not all(sides):
        return None
    steps = [sum(len(window.steps_us) for window in side) for side in sides]
    tables = [_kernel_tables(side, count) for side, count in zip(sides, steps, strict=True)]
    both = all(table is not None for table in tables)
    classes: tuple[Change, ...] = ()
    kernels: tuple[Change, ...] = ()
    total, left_out = None, 0
    if both:
        (old_classes, old), (new_classes, new) = (table for table in tables if table is not None)
        classes, _ = _changes(old_classes, new_classes)
        kernels, left_out = _changes(old, new)
        total = _total(old_classes, new_classes)
    operators, unknown = _changes(
        *(
            _side((_rows_of_operators(window) for window in side), count, whole=False)
            for side, count in zip(sides, steps, strict=True)
        )
    )
    ratio = host_factor(operators)
    return WindowChanges(
        before_steps=steps[0],
        after_steps=steps[1],
        kernel_total=total,
        kernel_classes=classes,
        kernels=kernels[:ROWS],
        operators=tuple(msgspec.structs.replace(one, status=beyond_factor(one, ratio)) for one in operators[:ROWS]),
        left_out=left_out + unknown,
        host_factor=ratio,
        caveats=(*_caveats(sides, steps), *([factor_sentence(ratio, "in the later run's windows")] if ratio else [])),
    )


def _usable(windows: Sequence[WindowFacts]) -> list[WindowFacts]:
    """Those with steps; windows of slow steps only where there are no others."""
    with_steps = [window for window in windows if window.steps_us]
    return [window for window in with_steps if not window.reason.startswith(SLOW)] or with_steps


def _kernel_tables(windows: Sequence[WindowFacts], steps: int) -> tuple[_Side, _Side] | None:
    """Classes and kernels; None if a window's kernels were not analysed, or there are none."""
    found = [window.analysis.kernels for window in windows if window.analysis and window.analysis.kernels]
    if len(found) < len(windows) or not any(facts.count for facts in found):
        return None
    foreign = _foreign_ratio(windows)
    classes = _side(
        ([(row.kernel_class, row.count, row.total_us) for row in facts.classes] for facts in found),
        steps,
        whole=True,
        foreign=foreign,
    )
    whole = all(sum(row.count for row in facts.kernels) >= facts.count for facts in found)
    kernels = _side(
        ([(row.name, row.count, row.total_us) for row in facts.kernels] for facts in found),
        steps,
        whole=whole,
        foreign=foreign,
    )
    return classes, kernels


def _foreign_ratio(windows: Sequence[WindowFacts]) -> float:
    work = sum(window.launches_matched + window.launches_unmatched for window in windows)
    return sum(window.launches_unmatched for window in windows) / work if work else 0.0


def _caveats(sides: Sequence[Sequence[WindowFacts]], steps: Sequence[int]) -> Iterator[str]:
    for name, windows, count in zip(("earlier", "later"), sides, steps, strict=True):
        if count < FEW_STEPS:
            yield f"the {name} run has {count} traced steps: small differences of kernels and operators may be noise"
        foreign = _foreign_ratio(windows)
        if foreign > SAME_RATIO:
            yield (
                f"{foreign * 100:.0f} % of the device work in the {name} run's windows was launched before them: its "
                "kernels are too high by about that"
            )


def _rows_of_operators(window: WindowFacts) -> list[Row]:
    return [(row.name, row.count, row.total_us) for row in window.top_operators]


def _side(tables: Iterable[Sequence[Row]], steps: int, *, whole: bool, foreign: float = 0.0) -> _Side:
    totals: dict[str, tuple[int, float]] = {}
    names: list[set[str]] = []
    for table in tables:
        names.append({name for name, _, _ in table})
        for name, count, us in table:
            known = totals.get(name, (0, 0.0))
            totals[name] = known[0] + count, known[1] + us
    partly = frozenset() if whole else frozenset(totals).difference(set(totals).intersection(*names))
    known_totals = {name: total for name, total in totals.items() if name not in partly}
    return _Side(totals=known_totals, steps=steps, whole=whole, partly=partly, foreign_ratio=foreign)


def _changes(before: _Side, after: _Side) -> tuple[tuple[Change, ...], int]:
    """Rows by absolute change, largest first, and how many names are not known of one of the two."""
    found, unknown = [], 0
    for name in dict.fromkeys((*before.totals, *after.totals, *before.partly, *after.partly)):
        if (name not in before.totals and not before.whole) or (name not in after.totals and not after.whole):
            unknown += 1
            continue
        found.append(_change(name, before, after, before.totals.get(name, (0, 0.0)), after.totals.get(name, (0, 0.0))))
    return tuple(sorted(found, key=lambda row: (-abs(row.change_us), row.name))), unknown


def _total(before: _Side, after: _Side) -> Change:
    sums = [
        (sum(count for count, _ in side.totals.values()), sum(us for _, us in side.totals.values()))
        for side in (before, after)
    ]
    return _change("all", before, after, *sums)


def _change(name: str, before: _Side, after: _Side, old: tuple[int, float], new: tuple[int, float]) -> Change:
    before_us, after_us = old[1] / before.steps, new[1] / after.steps
    return Change(
        name=name,
        before_us=before_us,
        after_us=after_us,
        change_us=after_us - before_us,
        before_count=old[0] / before.steps,
        after_count=new[0] / after.steps,
        status=_status(
            old[0], new[0], before_us, after_us, SAME_RATIO + max(before.foreign_ratio, after.foreign_ratio)
        ),
    )


def _status(before: int, after: int, before_us: float, after_us: float, same_ratio: float) -> Status:
    if not before:
        return "appeared" if after else "same"
    if not after:
        return "vanished"
    if abs(after_us - before_us) <= same_ratio * max(before_us, after_us):
        return "same"
    return "slower" if after_us > before_us else "faster"
