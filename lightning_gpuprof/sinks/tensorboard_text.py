"""A report as Markdown whose tables render in TensorBoard's Text tab."""

from collections.abc import Sequence
from pathlib import Path

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import method_tables, plain, tables, time_tables, wording
from lightning_gpuprof.sinks.first_screen import FirstScreen, first_screen

TOP_ROWS = 12

_BAR_CELLS = 12

_ENTITIES = str.maketrans({character: f"&#{ord(character)};" for character in "&<>|`\\*_[](){}#!~\"'"})
"""Characters with a meaning in Markdown or HTML. Numeric entities are left alone by every Markdown renderer, also
inside a table's cell, where a backslash is not."""


def escape(text: str) -> str:
    """Data as Markdown text that shows exactly these characters."""
    return plain.visible(text).translate(_ENTITIES)


def markdown(report: Report, folder: Path | None = None) -> str:
    """The diagnosis as Markdown, for ``logger.experiment.add_text``.

    Args:
        report: The report.
        folder: Of the run, for the command that proves the fix; None: not known.

    Returns:
        Paragraphs, lists and tables, with the data escaped for Markdown; a newline at the end.
    """
    screen = first_screen(report, folder)
    sections = [
        f"## {escape(screen.headline)}",
        escape(screen.sentence),
        *_change(screen),
        escape(" · ".join(one for one in (screen.goal, *screen.meta) if one)),
        f"**{escape(f'{screen.reliability.mark} {screen.reliability.words}')}** {escape(wording.steadiness(report))}",
        "\n".join(f"* {escape(caveat)}" for caveat in screen.reliability.details),
        f"**Verdict: {escape(report.verdict.kind)}.** {escape(plain.sentence(report.verdict.summary))}",
        f"Next largest cause: {escape(plain.sentence(report.verdict.runner_up))}" if report.verdict.runner_up else "",
        escape(wording.steps(report)),
        "## Findings",
        _findings(report),
        "" if report.findings else f"## Next step\n\n{escape(wording.next_step(report))}",
        *([] if report.method is None else _method(report)),
        _section(tables.wall_table(report)),
        "Written before the end of the run, which is not in it.",
        _section(tables.phase_table(report)),
        _section(time_tables.ledger_table(report, TOP_ROWS)),
        _section(tables.device_table(report)),
        _section(tables.window_table(report)),
        f"## Not evaluated\n\n{escape(wording.not_evaluated(report.not_evaluated))}",
        _section(tables.overhead_table(report)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _change(screen: FirstScreen) -> list[str]:
    """The change as a diff, the gain and the command that proves it."""
    if screen.fix is None:
        return []
    fix = screen.fix
    code = [f"    {mark} {plain.visible(line)}" for mark, line in fix.diff]
    change = [f"**Change:** {escape((fix.where or fix.place) if code else fix.advice)}"]
    code = code or ([f"    {fix.where}", f"    {plain.visible(fix.code)}"] if fix.code else [])
    change.append("\n".join(code))
    if screen.gain:
        change.append(f"**Gain:** {screen.bar_name} {screen.gain.replace('->', '→')}")
    return [*change, f"**Verify:**\n\n    {plain.visible(screen.proof)}"]


def _method(report: Report) -> list[str]:
    said = [f"* {escape(label)}: {escape(text)}" for label, text in method_tables.lines(report)]
    return [_section(method_tables.level_table(report)), "\n".join(said), _section(method_tables.check_table(report))]


def _findings(report: Report) -> str:
    if not report.findings:
        return escape(wording.nothing_found(report))
    return "\n\n".join(_finding(number, finding) for number, finding in enumerate(report.findings, 1))


def _finding(number: int, finding: Finding) -> str:
    subject = f" · {escape(plain.name(finding.subject))}" if finding.subject else ""
    lines = [
        f"### {number}. {finding.severity}: {escape(plain.name(finding.rule))}{subject}",
        escape(plain.sentence(finding.summary)),
        f"**Do:** {escape(plain.sentence(finding.advice))}",
    ]
    if finding.gain is not None:
        lines.append(f"**Gain:** {escape(wording.gain(finding, finding.gain))}")
    if finding.evidence:
        rows = [
            (
                escape(plain.name(item.name)),
                escape(wording.evidence_value(item)),
                escape(wording.evidence_limit(item)),
                escape(plain.sentence(item.source)) or numbers.ABSENT,
            )
            for item in finding.evidence
        ]
        lines.append(_grid(("evidence", "value", "limit", "source of the limit"), (False, True, True, False), rows))
    return "\n\n".join(lines)


def _section(table: tables.Table) -> str:
    heading = f"## {escape(table.title)}"
    if not table.rows:
        return f"{heading}\n\n{escape(table.absent)}"
    titles = tuple(escape(f"{column.title} {column.unit}".strip()) for column in table.columns)
    rows = [
        tuple(
            "█" * max(round((cell.ratio or 0.0) * _BAR_CELLS), 1 if cell.ratio else 0)
            if column.bar
            else escape(cell.text)
            for column, cell in zip(table.columns, row, strict=True)
        )
        for row in table.rows
    ]
    return f"{heading}\n\n{_grid(titles, tuple(column.numeric for column in table.columns), rows)}"


def _grid(titles: tuple[str, ...], numeric: tuple[bool, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table of escaped cells; an empty cell holds a space, or some renderers drop it."""
    lines = [titles, tuple("---:" if right else "---" for right in numeric), *rows]
    return "\n".join("| " + " | ".join(cell or "&nbsp;" for cell in line) + " |" for line in lines)
