"""What the rules say of a trace by itself: its verdict, findings and fixes, on the terminal and on its page."""

from collections.abc import Mapping
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from lightning_gpuprof.model.finding import Finding, NotEvaluated, Severity
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.trace.diagnosis import TraceDiagnosis
from lightning_gpuprof.sinks import plain, wording
from lightning_gpuprof.sinks.html_page import bdi, prose
from lightning_gpuprof.sinks.terminal_text import indented, labelled, sentence_text

QUIET = "No finding from this trace."
HOW = "Trainer(callbacks=[GpuProfiler()])"
HOW_SHAPES = "record the trace with record_shapes=True"

_STYLES: Mapping[Severity, str] = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def terminal(found: TraceDiagnosis) -> list[RenderableType]:
    """The verdict, each finding with its fix, and how many rules need a run."""
    lines: list[RenderableType] = [sentence_text(plain.sentence(found.verdict.summary), "bold")]
    lines += [sentence_text(plain.sentence(caveat), "yellow") for caveat in found.caveats]
    lines += [_finding(number, finding) for number, finding in enumerate(found.findings, 1)] or [Text(QUIET)]
    lines += [Text(f"{words}: {how}", style="dim") for words, how, _ in _open(found)]
    return [Group(*lines, Text(""))]


def html(found: TraceDiagnosis) -> str:
    """The same as a section of the page; the rules that need a run unfold."""
    caveats = "".join(f"<p>{bdi(plain.sentence(caveat))}</p>\n" for caveat in found.caveats)
    cards = "".join(map(card, found.findings)) or f"<p>{escape(QUIET)}</p>\n"
    rest = "".join(_folded(*one) for one in _open(found))
    return (
        f'<section id="findings">\n<h2>{bdi(plain.sentence(found.verdict.summary))}</h2>\n{caveats}{cards}'
        f"{rest}</section>\n"
    )


def _open(found: TraceDiagnosis) -> list[tuple[str, str, list[NotEvaluated]]]:
    """Rules that could not judge: what they need, how to get it, and which they are."""
    shapes = [one for one in found.need_a_run if "shape" in one.why]
    runs = [one for one in found.need_a_run if "shape" not in one.why]
    needs = (("a run", HOW, runs), ("the shapes of inputs", HOW_SHAPES, shapes))
    return [
        (f"{counted(len(rules), 'rule')} {'needs' if len(rules) == 1 else 'need'} {what}", how, rules)
        for what, how, rules in needs
        if rules
    ]


def _folded(words: str, how: str, rules: list[NotEvaluated]) -> str:
    rows = "".join(f"<li>{bdi(why)}: {bdi(', '.join(ids))}</li>\n" for why, ids in wording.by_reason(rules))
    head = f"<summary>{escape(words)}</summary>\n<p><code>{escape(how)}</code></p>\n"
    return f"<details>\n{head}<ul>\n{rows}</ul>\n</details>\n"


def _finding(number: int, finding: Finding) -> RenderableType:
    head = Text.assemble(
        f"{number}. ",
        (finding.severity, _STYLES[finding.severity]),
        " ",
        (plain.name(finding.title or finding.rule), "bold"),
        (f" ({plain.name(finding.rule)})", "dim") if finding.title else "",
    )
    rows = [labelled("what", plain.sentence(finding.summary)), labelled("fix ", plain.sentence(finding.advice), "bold")]
    rows += [indented(Text(f"     {line}")) for line in _diff(finding)]
    if finding.gain is not None:
        rows.append(labelled("gain", wording.gain(finding.gain, finding.expected)))
    return Group(head, *rows)


def card(finding: Finding) -> str:
    """A finding with its fix."""
    diff = "\n".join(_diff(finding))
    code = f"<pre>{escape(diff)}</pre>\n" if diff else ""
    gain = (
        f'<p class="gain">Gain: {escape(wording.gain(finding.gain, finding.expected))}</p>\n'
        if finding.gain is not None
        else ""
    )
    title = plain.name(finding.title or finding.rule)
    return (
        f'<article class="finding {finding.severity}">\n'
        f'<h3><span class="severity">{finding.severity}</span> {prose(title)}</h3>\n'
        f"<p>{prose(plain.sentence(finding.summary))}</p>\n"
        f'<p class="next"><span>Fix</span> {prose(plain.sentence(finding.advice))}</p>\n{code}{gain}</article>\n'
    )


def _diff(finding: Finding) -> list[str]:
    if finding.change is None:
        return []
    removed = [f"- {plain.name(line)}" for line in finding.change.removed]
    return removed + [f"+ {plain.name(line)}" for line in finding.change.added]
