"""What ``torch.compile`` does during a run: dynamo's counters and its list of compilations, read once a second.

Dynamo is never imported here: ``torch.compile`` and torch's optimizers do that, and a run without it costs a look into
``sys.modules``. Knows ``torch._dynamo.utils.counters`` and ``get_compilation_metrics`` as in torch 2.4 to 2.13; what a
version does not have is left out.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

from lightning_gpuprof.model.journal import Compilation, CompilerCounts

MAX_REASON = 300
MAX_REASONS = 50

Counters: TypeAlias = Mapping[str, Mapping[str, int]]

_COUNTS: dict[str, tuple[str, str]] = {
    "frames": ("frames", "ok"),
    "frames_tried": ("frames", "total"),
    "graphs": ("stats", "unique_graphs"),
    "operators": ("stats", "calls_captured"),
    "fx_cache_hits": ("inductor", "fxgraph_cache_hit"),
    "fx_cache_misses": ("inductor", "fxgraph_cache_miss"),
    "fx_cache_bypasses": ("inductor", "fxgraph_cache_bypass"),
    "aot_cache_hits": ("aot_autograd", "autograd_cache_hit"),
    "aot_cache_misses": ("aot_autograd", "autograd_cache_miss"),
    "aot_cache_bypasses": ("aot_autograd", "autograd_cache_bypass"),
    "cudagraph_skips": ("inductor", "cudagraph_skips"),
}
"""Our name of a counter, and dynamo's group and name."""

_LIMIT = ("recompile limit", "cache_size_limit", "cache size limit")
"""Words of dynamo's reasons for giving a function up, in lower case."""


def counters_now() -> Counters | None:
    """A copy of dynamo's counters; None if dynamo is not there."""
    live = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if live is None:
        return None
    # Each copy is one step of the interpreter: no other thread changes a dictionary in the middle of it.
    return {group: dict(counts) for group, counts in list(live.items())}


def compilations_now() -> list[Any]:
    """Dynamo's notes of its last compilations, oldest first."""
    utils = sys.modules.get("torch._dynamo.utils")
    given = getattr(utils, "get_compilation_metrics", None)
    return list(given()) if given is not None else []


def _counts_since(before: Counters, now: Counters) -> dict[str, int]:
    """What was counted between two looks, under names of ours; counters that stand still are left out."""
    found = {name: _difference(before, now, group, key) for name, (group, key) in _COUNTS.items()}
    found["graph_breaks"] = sum(_breaks_since(before, now).values())
    found["limit_hits"] = sum(
        _difference(before, now, "unimplemented", reason)
        for reason in now.get("unimplemented", {})
        if any(words in reason.lower() for words in _LIMIT)
    )
    return {name: count for name, count in found.items() if count > 0}


def _breaks_since(before: Counters, now: Counters) -> dict[str, int]:
    """Graph breaks between two looks: reason → how often, the most frequent."""
    found: dict[str, int] = {}
    for text in now.get("graph_break", {}):
        count = _difference(before, now, "graph_break", text)
        if count > 0:
            reason = short_reason(text)
            found[reason] = found.get(reason, 0) + count
    return dict(sorted(found.items(), key=lambda item: -item[1])[:MAX_REASONS])


def _difference(before: Counters, now: Counters, group: str, name: str) -> int:
    """A counter that was reset meanwhile (``torch._dynamo.reset`` does not, users may) counts from 0 again."""
    first, last = before.get(group, {}).get(name, 0), now.get(group, {}).get(name, 0)
    return last - first if last >= first else last


def short_reason(text: str) -> str:
    """The summary of a reason, with its explanation: dynamo adds hints, its own state and a link."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    explanation = next((line for line in lines if line.startswith("Explanation: ")), "")
    whole = f"{lines[0]}: {explanation.removeprefix('Explanation: ')}" if explanation else lines[0]
    return whole if len(whole) <= MAX_REASON else f"{whole[: MAX_REASON - 3]}..."


def _to_record(noted: Any, epoch_to_run_ns: int) -> Compilation | None:
    """One of dynamo's notes as a record; None if it has no time, without which it belongs nowhere.

    ``epoch_to_run_ns`` makes a calendar time one of the run's clock.
    """
    epoch_ns = _start_epoch_ns(noted)
    duration_ns = _ns(noted, "duration_us", "entire_frame_compile_time_s")
    if epoch_ns is None or duration_ns is None:
        return None
    forward, function = getattr(noted, "is_forward", None), getattr(noted, "co_name", None) or ""
    kind = "frame" if function else "backward"
    if getattr(noted, "is_runtime", None):
        kind = "runtime"
    elif forward is False:
        kind = "backward"
    return Compilation(
        start_ns=max(0, epoch_ns + epoch_to_run_ns),
        duration_ns=duration_ns,
        id=str(getattr(noted, "compile_id", None) or ""),
        kind=kind,
        function=function,
        file=_shown(getattr(noted, "co_filename", None) or ""),
        line=int(getattr(noted, "co_firstlineno", None) or 0),
        reason=short_reason(getattr(noted, "recompile_reason", None) or ""),
        breaks=sorted(short_reason(text) for text in getattr(noted, "restart_reasons", None) or ()),
        failure=_failure(noted),
        cudagraph_skip=short_reason(getattr(noted, "cudagraph_skip_reason", None) or ""),
        backend_ns=_ns(noted, "aot_autograd_cumulative_compile_time_us", "backend_compile_time_s"),
        inductor_ns=_ns(noted, "inductor_cumulative_compile_time_us", "inductor_compile_time_s"),
        guards=getattr(noted, "guard_count", None),
        operators=getattr(noted, "graph_op_count", None),
    )


def _start_epoch_ns(noted: Any) -> int | None:
    """When a compilation began, in calendar time."""
    return _ns(noted, "start_time_us", "start_time")


def _ns(noted: Any, name_us: str, name_s: str) -> int | None:
    """A time in ns: whole microseconds where this torch has them, else seconds."""
    microseconds = getattr(noted, name_us, None)
    if microseconds is not None:
        return int(microseconds) * 1000
    seconds = getattr(noted, name_s, None)
    return None if seconds is None else round(seconds * 1e9)


def _failure(noted: Any) -> str:
    kind = getattr(noted, "fail_type", None)
    return f"{kind}: {short_reason(getattr(noted, 'fail_reason', None) or '')}" if kind else ""


def _shown(file: str) -> str:
    """A path as people are shown it: below the working folder relative to it, elsewhere ``folder/file.py``."""
    if not file or file.startswith("<"):
        return file
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # no working folder; another drive
        relative = os.pardir
    if relative.startswith(os.pardir):
        return PurePath(*PurePath(file).parts[-2:]).as_posix()
    return PurePath(relative).as_posix()


MEMORY = 64
"""Compilations that dynamo remembers, as of torch 2.4 to 2.13."""


class CompileSampler:
    """Hands over each compilation once, and dynamo's counters as far as they moved since the stage was entered.

    Args:
        before: Dynamo's counters when the stage was entered; None if dynamo was not there.
        since_epoch_ns: Calendar time of the entry: compilations that began earlier are another's.
    """

    name = "torch.compile"
    interval_s = 1.0
    """Seconds between two looks: dynamo keeps its last 64 compilations."""

    def __init__(self, before: Counters | None, since_epoch_ns: int) -> None:
        self._before: Counters = before or {}
        self._since_epoch_ns = since_epoch_ns
        self._last: Any = None
        """The newest note that was seen: dynamo's own object, which it keeps as well."""
        self._lost = 0
        self._reported: dict[str, int] = {}

    def open(self) -> None:
        """There is nothing to get ready: dynamo may come later, or never."""

    def sample(self, t_ns: int) -> Sequence[Compilation | CompilerCounts]:
        """What is new."""
        now = counters_now()
        if now is None:
            return ()
        records: list[Compilation | CompilerCounts] = [*self._new_compilations()]
        counts = _counts_since(self._before, now)
        if counts and (counts != self._reported or records):
            self._reported = counts
            breaks = _breaks_since(self._before, now)
            records.append(CompilerCounts(t_ns=t_ns, counts=counts, breaks=breaks, lost=self._lost))
        return records

    def close(self) -> Sequence[Compilation | CompilerCounts]:
        """What is new since the last look."""
        return self.sample(time.perf_counter_ns())

    def _new_compilations(self) -> Sequence[Compilation]:
        noted = compilations_now()
        if not noted:
            return ()
        first = next((index for index in range(len(noted), 0, -1) if noted[index - 1] is self._last), None)
        self._last, new = noted[-1], noted[first or 0 :]
        epoch_to_run_ns = time.perf_counter_ns() - time.time_ns()
        if first is None and len(noted) >= MEMORY and (_start_epoch_ns(noted[0]) or 0) >= self._since_epoch_ns:
            self._lost += 1  # at least: how many is not known
        ours = [note for note in new if (_start_epoch_ns(note) or 0) >= self._since_epoch_ns]
        records = (_to_record(note, epoch_to_run_ns) for note in ours)
        return [record for record in records if record is not None]
