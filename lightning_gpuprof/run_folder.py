"""A run's folder becomes its metrics: the journal, the facts of its windows, and what other ranks left there."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from lightning_gpuprof.analyze import all_ranks, budget, metrics
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.analyze.rank_notices import notable
from lightning_gpuprof.analyze.rank_summary import OtherRanks, other_ranks, others_in_folder, summary_path
from lightning_gpuprof.errors import JournalError, TraceError
from lightning_gpuprof.model.journal import Notice, WindowRecord
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.run_folders import TRACE_ENDING, own_folders
from lightning_gpuprof.model.trace.rank_window import RankWindow
from lightning_gpuprof.model.trace.ranks import RanksComparison
from lightning_gpuprof.model.window import WindowFacts


def find_journal(directory: Path) -> Path:
    """The journal of the lowest rank in a folder, or in the only one of ours in it or beside it that has one.

    Raises:
        JournalError: There is none, or several subfolders have one.
    """
    if own := journals_in(directory):
        return own[0]
    inner = [found[0] for folder in own_folders(directory) if (found := journals_in(folder))]
    if len(inner) == 1:
        return inner[0]
    if inner:
        raise JournalError(
            f"{directory} contains {len(inner)} runs; name one: {', '.join(str(found.parent) for found in inner)}"
        )
    if not directory.exists():
        raise JournalError(f"{directory}: no such folder")
    raise JournalError(
        f"{directory}: no journal (rank0.jsonl) in it. Name the folder that the run printed, usually <log_dir>/gpuprof."
    )


def journals_in(folder: Path) -> list[Path]:
    """The journals of a folder, the lowest rank's first."""
    return sorted(folder.glob("rank*.jsonl"), key=lambda path: (len(path.name), path.name))


def metrics_of(
    journal: Journal,
    found: Path,
    notices: Sequence[Notice] = (),
    *,
    in_training: bool = False,
    others: OtherRanks | None = None,
) -> Metrics:
    """The metrics of a journal and of what lies beside it.

    Args:
        journal: It.
        found: The file that it was read from.
        notices: That did not reach the journal.
        in_training: In the training process, where no journal of another rank is read.
        others: The other ranks, where they have been read.

    Returns:
        Of the run's own rank; of several ranks with what they say beside each other.
    """
    on_gpu = journal.conditions.get("device.type") == "cuda"
    windows = [_facts(found.parent, window, on_gpu=on_gpu) for window in journal.windows]
    if journal.header.world_size == 1 and journal.standstill is None:
        return metrics.build(journal, windows, notices)
    if others is None:
        others = other_ranks(found, only_summaries=in_training)
    return all_ranks.build(journal, found, others, windows, notices)


def basis(journal: Journal, found: Path, notices: Sequence[Notice] = ()) -> tuple[object, ...]:
    """What a diagnosis rests on that the end of a run may still change: equal as long as nothing of it has changed.

    Args:
        journal: Of the run, whose steps are over.
        found: The file that it was read from.
        notices: That did not reach the journal.

    Returns:
        How the run ended, its notices and windows, and which versions of files beside its journal were read.
    """
    beside = [_facts_path(found.parent, window) for window in journal.windows]
    beside += [summary_path(other) for _, other in sorted(others_in_folder(found).items())]
    return (
        journal.footer and journal.footer.status,
        notable(journal, notices),
        journal.windows,
        metrics.is_unaccounted(budget.wall(journal)),
        [_version(path) for path in beside],
    )


def _version(path: Path) -> tuple[int, int] | None:
    """Of a file that is replaced as a whole."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def window_of_ranks(folder: Path) -> RanksComparison | None:
    """Compare ranks by what each has kept of the last window that most of them traced.

    Args:
        folder: Of the run.

    Returns:
        None if fewer than two have traced one.
    """
    traces = sorted(folder.glob(f"rank*{TRACE_ENDING}"))
    if len({trace.name.split(".")[0] for trace in traces}) < 2:
        return None
    from lightning_gpuprof.trace.analyses.communication.rank_window import read_beside
    from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks

    of_steps: dict[tuple[str, ...], dict[int, tuple[str, RankWindow]]] = {}
    for trace in traces:
        window = read_beside(trace)
        if window is not None and window.rank is not None:
            of_steps.setdefault(window.steps, {})[window.rank] = trace.name, window
    most = max(reversed(of_steps.values()), key=len, default={})
    if len(most) < 2:
        return None
    with suppress(TraceError):  # they are of jobs of different sizes
        return compare_ranks([window for _, window in most.values()], names=[name for name, _ in most.values()])
    return None


def _facts_path(directory: Path, window: WindowRecord) -> Path:
    return directory / window.file.replace(TRACE_ENDING, ".facts.json")


def _facts(directory: Path, window: WindowRecord, *, on_gpu: bool) -> WindowFacts:
    """The facts that the analysis left beside the trace, completed by what the run itself knows of the window."""
    facts = WindowFacts(start_step=window.start_step, stop_step=window.stop_step, file=window.file)
    problem = window.problem
    if window.file and (Path(window.file).name != window.file or not window.file.endswith(TRACE_ENDING)):
        # A journal is data: it must not name files outside of its folder.
        problem = problem or f"the trace has a name that none of ours has (*{TRACE_ENDING})"
    elif window.file:
        try:
            facts = msgspec.json.decode(_facts_path(directory, window).read_bytes(), type=WindowFacts)
            if on_gpu and not facts.problem and not facts.devices:
                problem = problem or "no GPU work in the trace: CUPTI may be in use or not permitted (gpuprof doctor)"
        except FileNotFoundError:
            problem = problem or "the trace has not been analysed (yet)"
        except (OSError, msgspec.MsgspecError) as error:
            problem = problem or f"the facts of the trace cannot be read: {error}"
    return msgspec.structs.replace(
        facts,
        start_step=window.start_step,
        stop_step=window.stop_step,
        file=window.file,
        problem="; ".join(p for p in (problem, facts.problem) if p),
        reason=window.reason,
        stop_cost_ms=window.stop_cost_ns / 1e6 if window.file else None,
    )
