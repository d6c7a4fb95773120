"""What ``torch.compile`` did in a run: graph breaks, recompiles with reason and step, and what compiling took."""

import msgspec

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.journal import Value

_MOST_REASON = 160
"""Characters of a reason that a sentence has."""


def short_reason(reason: str) -> str:
    """A reason of dynamo's on one line, cut where it is long."""
    line = " ".join(reason.split())
    return line if len(line) <= _MOST_REASON else f"{line[: _MOST_REASON - 3]}..."


class Recompile(msgspec.Struct, kw_only=True, frozen=True):
    """A function that was compiled once more, because no version of it fitted its arguments."""

    function: str
    """Its name."""
    file: str
    line: int
    """Where the function begins; of its part after a graph break, the line of the break."""
    reason: str
    """The guard that failed; empty if torch did not say."""
    batch: int | None
    """``total_batch_idx`` of the step in which it happened; None: outside of the steps."""
    steady: bool
    """Whether the run was steady by then."""
    cost_s: float
    """Time of the compilation, with that of its backward pass."""


class GraphBreak(msgspec.Struct, kw_only=True, frozen=True):
    """A place at which compiled code goes back to Python."""

    reason: str
    function: str
    """Empty if dynamo did not say where."""
    file: str
    line: int | None
    """Line of the break; None if only the function is known."""
    count: int
    """How often it was met while compiling: once for each version of the function."""

    @property
    def place(self) -> str:
        """As samples name it: ``costs.py:38 take``."""
        line = f":{self.line}" if self.line is not None else ""
        return f"{self.file}{line} {self.function}".strip()


class CompileFacts(msgspec.Struct, kw_only=True, frozen=True):
    """``torch.compile`` in one stage; what was compiled before the stage is not counted."""

    frames: int
    """Functions that dynamo compiled, parts after graph breaks and recompiles among them."""
    graphs: int
    """Graphs that were made."""
    graph_break_count: int
    """How often compiled code goes back to Python, met while compiling."""
    recompile_count: int
    """Functions compiled once more, for other arguments."""
    steady_recompile_count: int
    """Those after warm-up."""
    limit_hits: int
    """Functions that dynamo gave up, because they were recompiled too often: they run uncompiled."""
    failures: tuple[str, ...]
    """Why functions could not be compiled."""
    compile_s: float
    """Wall time in which anything was compiled."""
    steady_recompile_s: float
    """What they cost."""
    backend_s: float | None
    """Part of the frames' time that AOTAutograd and the backend took; None if it was not reported."""
    inductor_s: float | None
    """Time that inductor took, backward passes included; None if it was not reported."""
    steps_count: int
    """Steps in which something was compiled; they are no steady ones."""
    steps_excess_s: float | None
    """What these steps took more than as many steady ones; None without steady steps."""
    cache_hits: int
    """Of inductor's and AOTAutograd's caches on disk."""
    cache_misses: int
    """What had to be compiled again."""
    cudagraph_skips: int
    """CUDA graphs that were not used."""
    cudagraph_skip_reasons: tuple[str, ...]
    """Why."""
    recompiles: tuple[Recompile, ...]
    """In order, the first 200."""
    graph_breaks: tuple[GraphBreak, ...]
    """Most frequent first, at most 200."""
    lost: bool
    """Whether more was compiled at a time than dynamo remembers: then recompiles are missing here."""

    def most_costly(self, modules: Value) -> tuple[str, list[Recompile]]:
        """Name and recompiles of the function that cost most, of those after warm-up if there are any.

        ``modules`` names those that modules of torch's own have in the model.
        """
        by_function: dict[str, list[Recompile]] = {}
        for recompile in [one for one in self.recompiles if one.steady] or self.recompiles:
            name = in_words(f"{recompile.file}:{recompile.line} {recompile.function}")
            if "_dynamo/" in recompile.file and isinstance(modules, str) and modules:
                name = modules
            by_function.setdefault(name, []).append(recompile)
        return max(
            by_function.items(), key=lambda item: (sum(r.cost_s for r in item[1]), len(item[1])), default=("", [])
        )
