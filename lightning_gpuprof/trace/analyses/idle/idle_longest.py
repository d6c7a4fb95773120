"""The longest gaps, one by one: step, phase, what the host did, the kernels around, the line."""

from collections.abc import Sequence

import numpy as np

from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.trace.idle import IDLE_CAUSES, IdleGap
from lightning_gpuprof.trace.analyses.idle.idle_gaps import Gaps
from lightning_gpuprof.trace.analyses.idle.idle_pieces import IdlePieces
from lightning_gpuprof.trace.analyses.joins.call_places import call_places
from lightning_gpuprof.trace.analyses.joins.source_lines import SourceLines
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import take_or_absent
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows, Spans, joined


def longest_gaps(linked: LinkedTrace, gaps: Gaps, pieces: IdlePieces, limit: int) -> tuple[IdleGap, ...]:
    """List the longest gaps.

    Args:
        linked: The trace.
        gaps: All gaps of one device.
        pieces: Why they are there.
        limit: Most gaps that are listed.

    Returns:
        Longest first, of equally long ones the earlier; times in µs, from the start of the device's window.
    """
    chosen = np.lexsort((gaps.start_ns, -gaps.duration_ns))[:limit]
    if not len(chosen):
        return ()
    source = call_places(linked).source
    place = np.full(len(gaps), ABSENT, np.intp)
    place[chosen] = np.arange(len(chosen))
    cause_ns = pieces.by_cause(place[pieces.gap], len(chosen))
    after = gaps.after[chosen]
    threads = _launching_threads(linked, gaps.thread[chosen])
    launched = linked.launched[after]
    late = gaps.host_ns[chosen] > 0
    middle_ns = np.where(
        late,
        gaps.start_ns[chosen] + gaps.host_ns[chosen] // 2,
        np.where(launched, linked.launch_start_ns[after], gaps.start_ns[chosen]),
    )
    before = _work_before(linked, gaps, chosen)
    step = linked.steps.at(middle_ns)
    phase = _phases(linked, middle_ns, threads)
    host = _HostSpans(linked, int(gaps.host_ns[chosen][late].min(initial=np.iinfo(np.int64).max)) // 2)
    operator = linked.operator[after]
    line = _lines(linked, source, middle_ns, threads, operator)
    names = linked.trace.names
    found = []
    for row, gap in enumerate(chosen.tolist()):
        start_ns, host_end_ns = int(gaps.start_ns[gap]), int(gaps.host_end_ns[gap])
        spent = host.mostly(start_ns, host_end_ns, [int(side[row]) for side in threads]) if late[row] else None
        causes = {cause: int(ns) for cause, ns in zip(IDLE_CAUSES, cause_ns[:, row], strict=True) if ns}
        found.append(
            IdleGap(
                start_us=(start_ns - gaps.work.window_ns[0]) / 1000,
                duration_us=int(gaps.duration_ns[gap]) / 1000,
                cause=max(causes, key=causes.__getitem__),
                causes_us={cause: ns / 1000 for cause, ns in causes.items()},
                step=linked.steps.names[step[row]] if step[row] > ABSENT else None,
                phase=phase[row],
                host=names[spent[0]] if spent else None,
                host_ratio=spent[1] / (host_end_ns - start_ns) if spent else None,
                operator=names[linked.trace.cpu_op.name[operator[row]]] if operator[row] > ABSENT else None,
                before=names[linked.work.name[before[row]]],
                after=names[linked.work.name[after[row]]],
                launch_thread=linked.trace.threads[gaps.thread[gap]] if gaps.thread[gap] > ABSENT else None,
                line=source.lines[line[row]] if line[row] > ABSENT else None,
            )
        )
    return tuple(found)


def _launching_threads(linked: LinkedTrace, launching: Int32) -> tuple[Int32, Int32]:
    """Whom to ask what the host did, first and second: the launching thread and the main thread."""
    main = np.full(len(launching), ABSENT if linked.main_thread is None else linked.main_thread, np.int32)
    return np.where(launching > ABSENT, launching, main), main


def _work_before(linked: LinkedTrace, gaps: Gaps, chosen: Rows) -> Rows:
    """The work before each gap: the gap begins where it ends."""
    rows = linked.device_rows[gaps.device]
    by_end = rows[np.argsort(linked.work.end_ns[rows], kind="stable")]
    found: Rows = by_end[np.searchsorted(linked.work.end_ns[by_end], gaps.start_ns[chosen])]
    return found


def _phases(linked: LinkedTrace, time_ns: Int64, threads: tuple[Int32, Int32]) -> list[str | None]:
    first, second = (linked.phases.at(time_ns, side) for side in threads)
    found = np.where(first > ABSENT, first, second)
    return [None if phase == ABSENT else PHASES[phase] for phase in found.tolist()]


def _lines(
    linked: LinkedTrace, source: SourceLines, time_ns: Int64, threads: tuple[Int32, Int32], operator: Rows
) -> Rows:
    """The line of user code that the first of two threads was in, else the one that ran the operator."""
    line = np.full(len(time_ns), ABSENT, np.intp)
    if not len(linked.trace.python_function) and not linked.trace.stacks:
        return line
    for thread in threads:
        frame = take_or_absent(source.line_of_frame, source.frame_at(time_ns, thread))
        ran = take_or_absent(source.line_of_operator, linked.operators.innermost(time_ns, thread))
        line = np.where(line > ABSENT, line, np.where(frame > ABSENT, frame, ran))
    return np.where(line > ABSENT, line, take_or_absent(source.line_of_operator, operator))


class _HostSpans:
    """What the host may be in: operators, ranges, calls, and Python functions.

    Args:
        linked: The trace.
        least_ns: Shorter ones are never asked for.
    """

    def __init__(self, linked: LinkedTrace, least_ns: int) -> None:
        trace = linked.trace
        tables = trace.annotation, trace.cpu_op, trace.runtime, trace.python_function
        spans = joined(Spans, [t.spans.where(np.flatnonzero(t.duration_ns >= least_ns)) for t in tables])
        self._spans = spans.where(~linked.named(spans, lambda name: name.startswith(STEP)))

    def mostly(self, start_ns: int, end_ns: int, threads: Sequence[int]) -> tuple[int, int] | None:
        """Name and common time of the innermost span that holds at least half the time between two moments.

        Args:
            start_ns: Begin.
            end_ns: End, after the begin.
            threads: The first that was in such a span counts.
        """
        spans = self._spans
        near = spans.where(np.flatnonzero((spans.start_ns < end_ns) & (spans.end_ns > start_ns)))
        common_ns = np.minimum(near.end_ns, end_ns) - np.maximum(near.start_ns, start_ns)
        for thread in threads:
            own = np.flatnonzero((near.thread == thread) & (2 * common_ns >= end_ns - start_ns))
            if len(own):
                # of equally long ones the one that is last in the trace lies inside the others
                innermost = own[np.lexsort((-own, near.duration_ns[own]))[0]]
                return int(near.name[innermost]), int(common_ns[innermost])
        return None
