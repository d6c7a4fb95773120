"""What ``torch.compile`` did, and which steps it fell into."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.analyze.journal_columns import Journal, StepColumns
from lightning_gpuprof.analyze.steady import Mask, Selection
from lightning_gpuprof.model.compilation import CompileFacts, GraphBreak, Recompile
from lightning_gpuprof.model.journal import Compilation

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")
"""How dynamo names the part of a function after a graph break: with the line of the break."""

MAX_LISTED = 200
"""Recompiles, and places of graph breaks, that a report lists; it counts all."""


def compiled_steps(journal: Journal) -> Mask:
    """Steps in which anything was compiled; shape (n,)."""
    steps = journal.steps
    found = np.zeros(len(steps), np.bool_)
    for record in journal.compilations:
        first, last = _step_at(steps, record.start_ns), _step_at(steps, record.start_ns + record.duration_ns)
        for index in (first, last):
            if index is not None:
                found[index] = True
    return found


def compile_facts(journal: Journal, chosen: Selection, compiled: Mask) -> CompileFacts | None:
    """Everything about ``torch.compile``.

    Args:
        journal: One rank's journal.
        chosen: Which steps are steady.
        compiled: Of :func:`compiled_steps`.

    Returns:
        Times in s. Recompiles in steady steps come first, and of these and of graph breaks up to 200 are listed. None
        if nothing was compiled.
    """
    records, last = journal.compilations, journal.compiler_counts
    if not records and last is None:
        return None
    counts = last.counts if last is not None else {}
    frames = [record for record in records if record.kind == "frame"]
    recompiles = _recompiles(journal, frames, chosen)
    steady = [recompile for recompile in recompiles if recompile.steady]
    period = journal.steps.period_ns
    excess_s = None
    if chosen.steady.any():
        excess_s = max(0.0, float(period[compiled].sum() - compiled.sum() * np.median(period[chosen.steady])) / 1e9)
    return CompileFacts(
        frames=counts.get("frames", len(frames)),
        graphs=counts.get("graphs", 0),
        graph_break_count=counts.get("graph_breaks", 0),
        recompile_count=len(recompiles),
        steady_recompile_count=len(steady),
        limit_hits=counts.get("limit_hits", 0),
        failures=tuple(dict.fromkeys(record.failure for record in records if record.failure)),
        compile_s=_union_s(records),
        steady_recompile_s=sum(recompile.cost_s for recompile in steady),
        backend_s=_sum_s([record.backend_ns for record in frames]),
        inductor_s=_sum_s([record.inductor_ns for record in records]),
        steps_count=int(compiled.sum()),
        steps_excess_s=excess_s,
        cache_hits=counts.get("fx_cache_hits", 0) + counts.get("aot_cache_hits", 0),
        cache_misses=counts.get("fx_cache_misses", 0) + counts.get("aot_cache_misses", 0),
        cudagraph_skips=counts.get("cudagraph_skips", 0),
        cudagraph_skip_reasons=tuple(dict.fromkeys(r.cudagraph_skip for r in records if r.cudagraph_skip)),
        recompiles=tuple(sorted(recompiles, key=lambda one: not one.steady)[:MAX_LISTED]),
        graph_breaks=_graph_breaks(frames, last.breaks if last is not None else {})[:MAX_LISTED],
        lost=last is not None and last.lost > 0,
    )


def _step_at(steps: StepColumns, t_ns: int) -> int | None:
    """Index of the step that a moment lies in; None if it lies between steps."""
    index = int(np.searchsorted(steps.start_ns, t_ns, side="right")) - 1
    if index < 0 or t_ns >= steps.start_ns[index] + steps.period_ns[index]:
        return None
    return index


def _recompiles(journal: Journal, frames: Sequence[Compilation], chosen: Selection) -> list[Recompile]:
    backward_ns: dict[str, int] = {}
    for record in journal.compilations:
        if record.kind == "backward":
            backward_ns[record.id] = backward_ns.get(record.id, 0) + record.duration_ns
    found = []
    for record in frames:
        if not record.reason and record.id.rpartition("/")[2] in ("", "0"):
            continue
        index = _step_at(journal.steps, record.start_ns)
        function, line = _place(record)
        found.append(
            Recompile(
                function=function,
                file=record.file,
                line=line,
                reason=_without_id(record.reason),
                batch=None if index is None else int(journal.steps.batch[index]),
                steady=index is not None and chosen.first_steady is not None and index >= chosen.first_steady,
                cost_s=(record.duration_ns + backward_ns.get(record.id, 0)) / 1e9,
            )
        )
    return found


def _place(record: Compilation) -> tuple[str, int]:
    """The user's function and line: dynamo makes a function of each part after a graph break."""
    part = _RESUMED.fullmatch(record.function)
    return (part["function"], int(part["line"])) if part else (record.function, record.line)


def _without_id(reason: str) -> str:
    """``0/0: tensor 'x' size mismatch …`` without the number of the version that did not fit."""
    head, _, rest = reason.partition(": ")
    return rest if re.fullmatch(r"\d+/\d+", head) else reason


def _graph_breaks(frames: Sequence[Compilation], counted: dict[str, int]) -> tuple[GraphBreak, ...]:
    """Each place once. A break is met in one function; the next part of that function is named after its line."""
    places: Counter[tuple[str, str, str, int | None]] = Counter()
    known: dict[tuple[str, str, str], int] = {}
    for index, frame in enumerate(frames):
        for reason in frame.breaks:
            if reason not in counted:
                continue  # dynamo begins again for reasons of its own, too
            function, _ = _place(frame)
            key = (frame.function, frame.file, reason)
            line = _resumed_at(frames[index + 1 :], function, frame) or known.get(key)
            if line is not None:
                known[key] = line
            places[reason, function, frame.file, line] += 1
    placed: Counter[str] = Counter()
    for (reason, *_), count in places.items():
        placed[reason] += count
    found = [
        GraphBreak(reason=reason, function=function, file=file, line=line, count=count)
        for (reason, function, file, line), count in places.items()
    ]
    found += [
        GraphBreak(reason=reason, function="", file="", line=None, count=count - placed[reason])
        for reason, count in counted.items()
        if count > placed[reason]
    ]
    return tuple(sorted(found, key=lambda graph_break: -graph_break.count))


def _resumed_at(later: Sequence[Compilation], function: str, frame: Compilation) -> int | None:
    """The line at which a function goes on after a break in one of its parts."""
    version = frame.id.rpartition("/")[2]
    for record in later:
        part = _RESUMED.fullmatch(record.function)
        if part and part["function"] == function and record.file == frame.file:
            return int(part["line"]) if record.id.rpartition("/")[2] == version else None
        if record.function == frame.function and record.file == frame.file:
            return None  # the function's next version: its parts are not this one's
    return None


def _union_s(records: Sequence[Compilation]) -> float:
    """Wall time covered: frames compile within frames, and several threads at a time."""
    total_ns, end_ns = 0, 0
    for record in sorted(records, key=lambda record: record.start_ns):
        stop_ns = record.start_ns + record.duration_ns
        total_ns += max(0, stop_ns - max(record.start_ns, end_ns))
        end_ns = max(end_ns, stop_ns)
    return total_ns / 1e9


def _sum_s(times_ns: Sequence[int | None]) -> float | None:
    known = [ns for ns in times_ns if ns is not None]
    return sum(known) / 1e9 if known else None
