"""What the rules say of a trace by itself: its verdict, findings and fixes, on the terminal."""

import re

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from lightning_gpuprof.model.finding import Finding, NotEvaluated
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.trace.analysis import TraceDiagnosis
from lightning_gpuprof.model.trace.ranks import TRACE_ALL_RANKS
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.terminal_text import SEVERITY_STYLES, indented, labelled, sentence_text

QUIET = "No finding from this trace."
HOW = "Trainer(callbacks=[GpuProfiler()])"
HOW_SHAPES = "record the trace with record_shapes=True"
MAX_WHOLE = 3
"""Findings whose evidence and fix are printed; the others have a line each."""

_TRACE_OTHERS = re.compile(re.escape(TRACE_ALL_RANKS).replace("RANKS", r"\d+"))
_COMPARED = "see the comparison of the ranks"


def terminal(found: TraceDiagnosis, *, whole: bool, run: str = "") -> list[RenderableType]:
    """The verdict, the findings with their fixes, and how many rules need a run.

    Args:
        found: What the rules say of a trace.
        whole: Whether all findings are printed with evidence and fix, or only the first :data:`MAX_WHOLE`.
        run: What prints the report of the run that recorded the trace; empty: it is not known.

    Returns:
        One group, with an empty line at its end.
    """
    lines: list[RenderableType] = [sentence_text(plain.sentence(found.verdict.summary), "bold")]
    lines += [sentence_text(plain.sentence(caveat), "yellow") for caveat in found.caveats]
    lines += [
        _finding(number, finding) if whole or number <= MAX_WHOLE else _head(number, finding)
        for number, finding in enumerate(found.findings, 1)
    ] or [Text(QUIET)]
    lines += [Text(f"{words}: {how}", style="dim") for words, how, _ in unjudged(found, run)]
    return [Group(*lines, Text(""))]


def beside_other_ranks(found: TraceDiagnosis) -> TraceDiagnosis:
    """What the rules say of a rank that is compared with the others: these need not be traced first."""
    findings = tuple(replace(one, advice=_TRACE_OTHERS.sub(_COMPARED, one.advice)) for one in found.findings)
    return replace(found, findings=findings)


def unjudged(found: TraceDiagnosis, run: str = "") -> list[tuple[str, str, list[NotEvaluated]]]:
    """Rules that could not judge, by what they need.

    Args:
        found: What the rules say of a trace.
        run: As of :func:`terminal`.

    Returns:
        What is missing in words (``3 rules need a run``), how to get it, and the rules, for each need; empty if all
        rules could judge.
    """
    shapes = [one for one in found.need_a_run if "shape" in one.why]
    runs = [one for one in found.need_a_run if "shape" not in one.why]
    needs = (("the run's journal" if run else "a run", run or HOW, runs), ("the shapes of inputs", HOW_SHAPES, shapes))
    return [
        (f"{counted(len(rules), 'rule')} {'needs' if len(rules) == 1 else 'need'} {what}", how, rules)
        for what, how, rules in needs
        if rules
    ]


def _head(number: int, finding: Finding) -> Text:
    return Text.assemble(
        f"{number}. ",
        (finding.severity, SEVERITY_STYLES[finding.severity]),
        " ",
        (plain.name(finding.title or finding.rule), "bold"),
        (f" ({plain.name(finding.rule)})", "dim") if finding.title else "",
    )


def _finding(number: int, finding: Finding) -> RenderableType:
    rows = [labelled("what", plain.sentence(finding.summary)), labelled("fix ", plain.sentence(finding.advice), "bold")]
    rows += [indented(Text(f"     {line}")) for line in diff(finding)]
    if finding.gain is not None:
        rows.append(labelled("gain", wording.gain(finding, finding.gain)))
    return Group(_head(number, finding), *rows)


def diff(finding: Finding) -> list[str]:
    """Lines of a finding's change, each with its sign."""
    if finding.change is None:
        return []
    removed = [f"- {plain.name(line)}" for line in finding.change.removed]
    return removed + [f"+ {plain.name(line)}" for line in finding.change.added]
