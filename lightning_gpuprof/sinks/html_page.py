"""Tables flow in, parts of an HTML page that opens from disk without any network flow out."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

import msgspec

from lightning_gpuprof.sinks import tables

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The browser itself refuses every request of the page to any host."""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page.

    Args:
        title: What the browser shows as its name.
        body: Parts of HTML, with scripts last.
    """
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(title)}</title>\n",
            f"<style>\n{own('report.css')}</style>\n</head>\n<body>\n",
            *body,
            "</body>\n</html>\n",
        )
    )


def own(name: str) -> str:
    """A file of this package that belongs to the page."""
    return files("lightning_gpuprof.sinks").joinpath(name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """Plotly's own script, from the installed package."""
    from plotly.offline import get_plotlyjs  # a second to import, and only pages with a figure need it

    # HTML ends a script at the first "</script", wherever it stands.
    return "".join(("<script>", str(get_plotlyjs()).replace("</script", "<\\/script"), "</script>\n"))


def script_json(value: object) -> str:
    """JSON of anything that msgspec encodes; it can stand inside a script element whatever its strings hold."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def bdi(data: str) -> str:
    """Data inside running text: escaped, and without influence on the direction of what follows."""
    return f"<bdi>{escape(data)}</bdi>"


def term(text: str, term: str) -> str:
    """A word that is explained on hover; all of them are also in the list of terms, which needs no pointer."""
    shown = bdi(text)
    return f'<abbr title="{escape(term)}">{shown}</abbr>' if term else shown


def section(anchor: str, table: tables.Table, before: str = "", after: str = "") -> str:
    """A table under its title."""
    return f'<section id="{anchor}">\n<h2>{escape(table.title)}</h2>\n{before}{table_html(table)}{after}</section>\n'


def folded(anchor: str, table: tables.Table) -> str:
    """A table under its title, closed at first."""
    return (
        f'<section id="{anchor}">\n<details>\n<summary><h2>{escape(table.title)}</h2></summary>\n'
        f"{table_html(table)}</details>\n</section>\n"
    )


def table_html(table: tables.Table) -> str:
    """A table, or the sentence that says why there is none."""
    if not table.rows:
        return f'<p class="absent">{escape(table.absent)}</p>\n'
    head = "".join(_heading(column) for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(column, cell) for column, cell in zip(table.columns, row, strict=True))}</tr>\n"
        for row in table.rows
    )
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n'


def _heading(column: tables.Column) -> str:
    if column.bar:
        return '<th scope="col" class="b"><span class="hidden">as a bar</span></th>'
    unit = f" <small>{escape(column.unit)}</small>" if column.unit else ""
    kind = ' class="n"' if column.numeric else ""
    return f'<th scope="col"{kind}>{term(column.title, column.term)}{unit}</th>'


def _cell(column: tables.Column, cell: tables.Cell) -> str:
    if column.bar:
        if not cell.ratio:
            return '<td class="b"></td>'
        width = min(max(cell.ratio, 0.0), 1.0) * 100
        return f'<td class="b"><span class="bar c-{escape(cell.key)}" style="width:{width:.3f}%"></span></td>'
    kind = ' class="n"' if column.numeric else ""
    return f"<td{kind}>{term(cell.text, cell.term)}</td>"
