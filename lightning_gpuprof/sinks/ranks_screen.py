"""The ranks of a job on the terminal, in at most 25 lines of 80 columns: the answer first, then the five worst."""

from collections import Counter

import msgspec
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.curves import RankRow
from lightning_gpuprof.model.job_ranks import JobRanks, RankState
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.console import print_to
from lightning_gpuprof.sinks.terminal_text import command, labelled, sentence_text

MAX_LINES = 25
_LONGEST = 300
"""Characters of a sentence."""
_MOST_PROBLEMS = 4
_NOISE_RATIO = 0.001
"""Of the step: less than that is no difference between ranks. Heuristic."""


def print_screen(job: JobRanks) -> None:
    """Print it on standard output."""
    print_to(None, _Screen(job))


class _Screen(msgspec.Struct, frozen=True):
    """The screen; where it would be too long, with fewer sentences under the table."""

    job: JobRanks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sentences = _sentences(self.job)
        for count in range(len(sentences), -1, -1):
            parts = Group(*_head(self.job), *_table(self.job), *sentences[:count], *_commands(self.job))
            if len(console.render_lines(parts, options, pad=False)) <= MAX_LINES:
                break
        yield parts


def _head(job: JobRanks) -> list[RenderableType]:
    hosts = len({one.host for one in job.ranks if one.host})
    counts = Counter(one.state for one in job.ranks)
    states = [f"{count:,} {state}" for state, count in counts.most_common()]
    ranks = f"{numbers.counted(job.world_size, 'rank')} on {numbers.counted(hosts, 'host')}"
    return [
        sentence_text(_short(job.answer), "bold"),
        Text(f"  {job.stage} · {ranks}: {', '.join(states)}", style="dim"),
        Text(""),
    ]


def _table(job: JobRanks) -> list[RenderableType]:
    """The worst ranks, a line each, and what is said of them."""
    rows = {} if job.comparison is None else {row.rank: row for row in job.comparison.rows}
    states = {one.rank: one for one in job.ranks}
    shown = [
        (
            str(rank),
            plain.name(one.host, 20) or "-",
            one.state,
            "-" if one.batches is None else f"{one.batches:,}",
            "-" if one.written_s is None else f"{numbers.seconds(one.written_s)} ago",
            numbers.millis(rows[rank].period_ms) if rank in rows else "-",
            _beyond_others(rows[rank]) if rank in rows else "-",
        )
        for rank in job.worst
        for one in [states[rank]]
    ]
    heads = ("rank", "host", "state", "batches", "written", "step", "beyond others")
    widths = [max(len(row[at]) for row in (heads, *shown)) for at in range(len(heads))]
    lines: list[RenderableType] = [Text("  " + _line(heads, widths), style="dim", no_wrap=True)]
    for row, rank in zip(shown, job.worst, strict=True):
        lines.append(Text("  " + _line(row, widths), no_wrap=True))
        if detail := _detail(states[rank]):
            lines.append(Text(f"    {detail}", style="dim", no_wrap=True, overflow="ellipsis"))
    if left := len(job.ranks) - len(job.worst):
        lines.append(Text(f"  and {left:,} more: --json has them all", style="dim"))
    return [*lines, Text("")]


def _beyond_others(row: RankRow) -> str:
    return "0 ms" if abs(row.excess_ms) < _NOISE_RATIO * row.period_ms else numbers.millis(row.excess_ms)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(
        cell.ljust(width) if at in (1, 2) else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def _detail(one: RankState) -> str:
    if one.state in ("missing", "unreadable"):
        return ""  # that is under "left out"
    return plain.sentence(f"{'waits ' if one.waits and one.state != 'killed' else ''}{one.detail}")


def _sentences(job: JobRanks) -> list[RenderableType]:
    """The most important first."""
    found: list[RenderableType] = []
    well = all(one.state in ("running", "finished", "missing", "unreadable") for one in job.ranks)
    for finding in job.findings if well else ():
        if finding.summary != job.answer:
            found.append(labelled("late:", _short(finding.summary)))
        found.append(labelled("do:", _short(finding.advice)))
        if finding.gain is not None:
            saved, speedup = finding.gain.saved_ms_per_step, finding.gain.speedup_max
            found.append(labelled("gain:", f"at most {numbers.millis(saved)} per step, {numbers.factor(speedup)}"))
    found += [labelled("ends:", _short(text)) for text in job.ends if not job.answer.lower().startswith(text.lower())]
    found += [labelled("left out:", _short(text)) for text in job.problems[:_MOST_PROBLEMS]]
    if (left := len(job.problems) - _MOST_PROBLEMS) > 0:
        found.append(labelled("left out:", f"and {left:,} more"))
    if job.not_compared and len(job.ranks) > 1:
        found.append(labelled("times:", _short(job.not_compared)))
    return found


def _commands(job: JobRanks) -> list[RenderableType]:
    folder, states = plain.visible(job.folder), {one.rank: one for one in job.ranks}
    lines = [command("stacks:", f"{folder}/rank{rank}.stacks.txt") for rank in job.worst[:1] if states[rank].has_stacks]
    for rank in (*job.worst, *states):
        if states[rank].has_journal:
            return [*lines, command("all:", f"gpuprof report {folder} --rank {rank}")]
    return lines


def _short(text: str) -> str:
    return plain.sentence(plain.shorten(text, _LONGEST))
