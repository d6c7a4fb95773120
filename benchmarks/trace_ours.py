"""Reads a trace with this package and computes everything that is known of it; the last line says what it took.

    python benchmarks/trace_ours.py ours FILE

Started by ``trace.py`` in a process of its own. Without a file only the imports are done.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trace_reading import Meter

if TYPE_CHECKING:
    from lightning_gpuprof.trace.reader import Trace

AS_HTA = ("idle", "streams", "api_tables", "kernels", "communication")
"""The analyses that say what HolisticTraceAnalysis is asked for: idle time and its causes, queue and concurrency,
launches, kernels, communication and its overlap."""
READERS: dict[str, tuple[bool, int | None, tuple[str, ...] | None]] = {
    "ours": (False, None, None),
    "ours-as-hta": (False, None, AS_HTA),
    "ours-all": (True, None, None),
    "ours-1": (False, 1, None),
}
"""Whether Python functions are read, without which there are no source lines; the number of processes; the analyses."""

READING = "reading: "
IMPORTED = ("analysis", "analyses.health.kineto_facts", "linked", "reader")
JOINS = ("launch", "operators", "operator_of_call", "operator", "steps", "phases", "device_rows", "main_thread")
JOINS_OF_FRAMES = ("frames",)


def analyse_all(trace: Trace, meter: Meter, only: tuple[str, ...] | None) -> None:
    """Compute everything: the joins that several analyses share, each analysis, and the facts; or some analyses."""
    from lightning_gpuprof.trace.analyses.health.kineto_facts import kineto_facts
    from lightning_gpuprof.trace.analysis import analyse
    from lightning_gpuprof.trace.linked import LinkedTrace

    linked = LinkedTrace(trace)
    meter.mark("reading")
    for join in (*JOINS, *(JOINS_OF_FRAMES if trace.with_frames else ())) if only is None else ():
        with meter.part(f"join: {join}"):
            getattr(linked, join)
    meter.mark("joins")
    timings: dict[str, float] = {}
    meter.problems.extend(analyse(linked, only=only, timings=timings).problems)
    for name, seconds in timings.items():
        meter.add(f"analysis: {name}", seconds)
    if only is None:
        with meter.part("analysis: kineto_facts"):
            kineto_facts(linked, sha256="", bytes_file=0)
    meter.mark("analyses")


def watch_reader(meter: Meter) -> None:
    """Let the stages of the reader be timed; of two processes that read, this one's are.

    Unpacking runs ahead on a thread of its own: what is timed is the waiting for it. Of two processes, waiting for the
    other one is in the rest.
    """
    from lightning_gpuprof.trace.chunks import Pieces
    from lightning_gpuprof.trace.columns import ColumnBuilder
    from lightning_gpuprof.trace.events import EventDecoder

    _watch(meter, EventDecoder, "decode", "decode")
    _watch(meter, ColumnBuilder, "add", "columns")
    _watch(meter, ColumnBuilder, "absorb", "join the halves")
    _watch(meter, ColumnBuilder, "table", "tables")
    pieces = Pieces.__iter__

    def timed(self: Pieces) -> Iterator[bytearray]:
        found = pieces(self)
        while True:
            with meter.part(READING + "unpack and cut"):
                piece = next(found, None)
            if piece is None:
                return
            yield piece
            del piece  # it would be in memory beside the next one

    Pieces.__iter__ = timed  # type: ignore[method-assign]


def _watch(meter: Meter, owner: type, method: str, part: str) -> None:
    plain: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(plain)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with meter.part(READING + part):
            return plain(*args, **kwargs)

    setattr(owner, method, timed)


def main(reader: str, path: str = "") -> None:
    """Import, read, analyse, tell."""
    frames, processes, only = READERS[reader]
    meter = Meter()
    for module in IMPORTED:
        importlib.import_module(f"lightning_gpuprof.trace.{module}")
    from lightning_gpuprof.trace.compression import fastest_gzip
    from lightning_gpuprof.trace.reader import Trace

    fastest_gzip()  # imports what unpacks
    watch_reader(meter)
    meter.imported()
    if not path:
        meter.finish()
        return
    begin = time.perf_counter()
    trace = Trace.read(Path(path), frames=frames, processes=processes, fork=True)
    took = time.perf_counter() - begin
    meter.others_ended()
    meter.add(READING + "rest", took - sum(meter.parts_s.values()))
    analyse_all(trace, meter, only)
    meter.finish(bytes_json=trace.bytes_json)


if __name__ == "__main__":
    main(*sys.argv[1:])
