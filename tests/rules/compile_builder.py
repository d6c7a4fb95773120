"""Builds the Metrics of a run that compiled."""

from collections.abc import Sequence
from typing import Any

from metrics_builder import build, replace

from lightning_gpuprof.model.compilation import CompileFacts, GraphBreak, Recompile
from lightning_gpuprof.model.metrics import Metrics

SIZE = "tensor 'x' size mismatch at index 0. expected 32, actual 31"


def recompile(batch: int, reason: str = SIZE, *, cost_s: float = 0.5, file: str = "net.py") -> Recompile:
    return Recompile(function="forward", file=file, line=21, reason=reason, batch=batch, steady=True, cost_s=cost_s)


def graph_break(reason: str, *, line: int | None = 31, file: str = "net.py", count: int = 1) -> GraphBreak:
    return GraphBreak(reason=reason, function="forward", file=file, line=line, count=count)


def compiled(
    recompiles: Sequence[Recompile] = (), breaks: Sequence[GraphBreak] = (), *, run: Any = None, **more: Any
) -> Metrics:
    """A run of 400 steps in 21.9 s that compiled its model once, and what else is said."""
    facts: dict[str, Any] = {
        "frames": 1 + len(recompiles),
        "graphs": 1 + len(recompiles) + len(breaks),
        "graph_break_count": sum(b.count for b in breaks),
        "recompile_count": len(recompiles),
        "steady_recompile_count": len(recompiles),
        "limit_hits": 0,
        "failures": (),
        "compile_s": 4.0,
        "steady_recompile_s": sum(r.cost_s for r in recompiles),
        "backend_s": 3.0,
        "inductor_s": None,
        "steps_count": 1 + len(recompiles),
        "steps_excess_s": 4.0 + sum(r.cost_s for r in recompiles),
        "cache_hits": 0,
        "cache_misses": 0,
        "cudagraph_skips": 0,
        "cudagraph_skip_reasons": (),
        "recompiles": tuple(recompiles),
        "graph_breaks": tuple(breaks),
        "lost": False,
    }
    return replace(build(run=run), compile=CompileFacts(**{**facts, **more}))
