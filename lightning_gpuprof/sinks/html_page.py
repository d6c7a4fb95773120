"""Parts of an HTML page that opens from disk without a network."""

import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from lightning_gpuprof.model import numbers
from lightning_gpuprof.sinks import tables
from lightning_gpuprof.sinks.column_terms import COLUMN_TERMS

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""The browser itself refuses every request of the page to any host."""

SHARED_SCRIPTS = ("figures", "tables", "page")
"""Scripts of ``web/`` that every page with figures or large tables has, in this order, before those of its figures."""
DRAWN_WITHOUT_PLOTLY = frozenset({"timeline"})
_FIGURE = re.compile(
    r'(<div class="figure" data-figure="(\w+)"[^>]*>\n)<script type="application/json">[^<]*</script>\n'
)
_WHOLE = re.compile(r'("(?:[^"\\]|\\.)*")|(?<=\d)\.0(?=[,\]}])')
"""Strings, and what whole numbers do not need: a sixth of the numbers of a timeline."""
_CODE = re.compile(
    r"(`[^`]+`|(?<![\w./`])(?:"
    r"[\w./-]*\w\.py(?::\d+)?"
    r"|[A-Za-z_][\w.]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?:\.\w+\([^()]*\))*"
    r"|(?:[A-Za-z]\w*\.)*[A-Za-z]\w*_\w*(?:=(?:[\w.]*\w|\"[^\"\s]*\"))?"
    r"|[A-Za-z]\w+(?:\.[A-Za-z]\w+)+|[a-z]+=(?:True|False|None)))"
)
"""In a sentence: ``train.py:42``, ``need()``, ``super().step(batch)``, ``num_workers=2``, ``torch.compile``."""
_JOINT = re.compile(r"[(/=]|\.(?=\w)|_+(?=[^\W_])")
LONG_CODE = 24
"""Characters that have a line of a telephone to themselves."""
LARGE_FROM = 5
"""Rows that can be sorted; with fewer there is nothing to look for."""
_LARGE = "<table data-large>"


def page(title: str, body: Iterable[str], *, with_scripts: bool = True) -> str:
    """A whole page as text; the arguments are those of :func:`pieces`.

    Args:
        title: Of the page.
        body: HTML, in pieces.
        with_scripts: Whether scripts are part of the page.

    Returns:
        A whole HTML document, which needs no other file and no network.
    """
    return b"".join(pieces(title, body, with_scripts=with_scripts)).decode()


def pieces(title: str, body: Iterable[str], *, with_scripts: bool = True) -> tuple[bytes, ...]:
    """A whole page, in pieces that a file takes one after the other.

    Args:
        title: What the browser shows as its name.
        body: Parts of HTML, with an element ``main`` in them.
        with_scripts: Add the scripts of its figures and large tables.

    Returns:
        UTF-8: the page up to its scripts, these if it needs any, and its end.
    """
    parts = tuple(map(without_plotly, body))
    text = "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            '<meta name="color-scheme" content="light dark">\n',
            f"<title>{escape(title)}</title>\n",
            f"<style>\n{packaged_text('report.css')}</style>\n</head>\n<body>\n",
            '<a class="skip" href="#main">Skip to the content</a>\n',
            *parts,
        )
    )
    return text.encode(), *(scripts(parts) if with_scripts else ()), b"</body>\n</html>\n"


def packaged_text(name: str) -> str:
    """A file of this package that belongs to the page."""
    return files("lightning_gpuprof.sinks").joinpath("web", name).read_text(encoding="utf-8")


def figure(kind: str, data: object, label: str, drawn: str = "") -> str:
    """A figure that the page's script draws in the place of its numbers.

    Args:
        kind: Name of the drawing function in ``web/``.
        data: What it gets; anything that msgspec encodes.
        label: What the figure shows, for those who cannot see it.
        drawn: The figure without a script, for where Plotly is not.

    Returns:
        HTML with the data as JSON, whatever its strings hold; only ``drawn`` is not escaped.
    """
    drawn = drawn or '<p class="hint">The figure needs JavaScript; all its numbers are in the tables.</p>\n'
    return (
        f'<div class="figure" data-figure="{escape(kind)}" role="img" aria-label="{escape(label)}">\n'
        f'<script type="application/json">{script_json(data)}</script>\n{drawn}</div>\n'
    )


def without_plotly(html: str) -> str:
    """Parts of a page whose figures stay as they are drawn already; their numbers for Plotly's are left out."""
    return _FIGURE.sub(lambda found: found[0] if found[2] in DRAWN_WITHOUT_PLOTLY else found[1], html)


def scripts(body: Iterable[str]) -> tuple[bytes, ...]:
    """The scripts that draw the figures of a page, sort its large tables and fold wide ones, if it has any."""
    parts = tuple(body)
    kinds = sorted({kind for part in parts for _, kind in _FIGURE.findall(part)} & DRAWN_WITHOUT_PLOTLY)
    if not kinds and not any("<table" in part or "data-copy" in part for part in parts):
        return ()
    drawing = "\n".join(
        packaged_text(f"{name}.js") for name in (*SHARED_SCRIPTS, *(f"figure_{kind}" for kind in kinds))
    )
    return (f"<script>\n{drawing}gpuprof.draw(document);\n</script>\n".encode(),)


def script_json(value: object) -> str:
    """JSON of anything that msgspec encodes; it can stand inside a script element whatever its strings hold."""
    text = _WHOLE.sub(lambda found: found[1] or "", msgspec.json.encode(value).decode())
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def bdi(data: str) -> str:
    """Data inside running text: escaped, and without influence on the direction of what follows."""
    return f"<bdi>{escape(data)}</bdi>"


def prose(text: str) -> str:
    """A sentence as :func:`bdi` has it, with code marked as such: names, calls, files, and what is in backquotes."""
    parts = (_code(one.strip("`")) if n % 2 else escape(one) for n, one in enumerate(_CODE.split(text)))
    return f"<bdi>{''.join(parts)}</bdi>"


def _code(text: str) -> str:
    """Code in a sentence; long names break between their parts, where they have to."""
    shown = _JOINT.sub(r"\g<0><wbr>", escape(text)) if len(text) > LONG_CODE else escape(text)
    return f"<code>{shown}</code>"


def term(text: str, term: str) -> str:
    """A word that is explained on hover; all of them are also in the list of terms, which needs no pointer.

    Args:
        text: The word; not HTML.
        term: What it means; empty for no explanation.

    Returns:
        HTML, escaped; without an explanation just the word.
    """
    shown = escape(text) if text.isascii() else bdi(text)  # ASCII turns no direction
    return f'<abbr title="{escape(term)}">{shown}</abbr>' if term else shown


def titled(shown: Iterable[tables.Table]) -> str:
    """Tables that have rows, each under a smaller title."""
    return "".join(f"<h3>{escape(table.title)}</h3>\n{table_html(table)}" for table in shown if table.rows)


def unfolded_on_click(shown: Iterable[tables.Table]) -> str:
    """Tables that have rows, each closed at first."""
    return "".join(
        f"<details>\n<summary>{escape(table.title)}</summary>\n{table_html(table)}</details>\n"
        for table in shown
        if table.rows
    )


def colour(key: str) -> str:
    """Style of what has the colour of a key: a phase, a part of the wall time, a variable of ``report.css``."""
    return f"background:var(--{escape(key)})"


def legend(meanings: Iterable[tuple[str, str]], more: str = "", *, title: str = "") -> str:
    """The colours of a figure.

    Args:
        meanings: Key of a colour, and what has it, as HTML.
        more: Further items of the list.
        title: What stands before them, as text.

    Returns:
        HTML of a list, in the order given; only the keys and ``title`` are escaped.
    """
    items = f"<li>{escape(title)}</li>\n" if title else ""
    items += "".join(f'<li><i style="{colour(key)}"></i>{meaning}</li>\n' for key, meaning in meanings)
    return f'<ul class="colours">\n{items}{more}</ul>\n'


def stack(what: str, shares: Iterable[tuple[str, str, float]]) -> str:
    """One bar that shows how a whole is divided.

    Args:
        what: Its name, for those who cannot see it.
        shares: Key of a colour, name and share of each part, 0 to 1.

    Returns:
        HTML, parts in the order given, those of 0 left out; empty if none is left.
    """
    shown = [(key, f"{name} {numbers.exact_percent(share)}", share) for key, name, share in shares if share > 0]
    if not shown:
        return ""
    pieces = "".join(
        f'<span style="{colour(key)};width:{share * 100:.3f}%" title="{escape(words)}"></span>'
        for key, words, share in shown
    )
    said = escape(f"{what}: {', '.join(words for _, words, _ in shown)}")
    return f'<div class="stack" role="img" aria-label="{said}">{pieces}</div>\n'


def listed(sentences: Iterable[str]) -> str:
    """Sentences as a list; empty if there are none."""
    items = "".join(f"<li>{bdi(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>\n" if items else ""


def absent(why: str) -> str:
    """The sentence that stands where there is nothing to show."""
    return f'<p class="absent">{escape(why)}</p>\n'


def headed(anchor: str, title: str, inside: str) -> str:
    """A section under its title.

    Args:
        anchor: Its id on the page.
        title: HTML.
        inside: HTML.

    Returns:
        HTML; nothing is escaped.
    """
    return f'<section id="{anchor}">\n<h2>{title}</h2>\n{inside}</section>\n'


def section(anchor: str, table: tables.Table, before: str = "", after: str = "") -> str:
    """A table under its title.

    Args:
        anchor: Its id on the page.
        table: The table.
        before: HTML above the table.
        after: HTML below the table.

    Returns:
        HTML; the table and its title are escaped, the other arguments are not.
    """
    return headed(anchor, escape(table.title), before + table_html(table) + after)


def folded(anchor: str, title: str, inside: str) -> str:
    """A section that is closed at first.

    Args:
        anchor: Its id on the page.
        title: Its title.
        inside: HTML.

    Returns:
        HTML; of the arguments only ``title`` is escaped.
    """
    head = f"<summary><h2>{escape(title)}</h2></summary>"
    return f'<section id="{anchor}">\n<details>\n{head}\n{inside}</details>\n</section>\n'


def glossary(entries: Iterable[tuple[str, str]]) -> str:
    """Words and what they mean, closed at first."""
    items = "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>\n" for word, meaning in entries)
    return folded("terms", "Glossary", f"<dl>\n{items}</dl>\n")


def table_html(table: tables.Table) -> str:
    """A table, or the sentence that says why there is none."""
    if not table.rows:
        return absent(table.absent)
    head = "".join(_heading(column) for column in table.columns)
    last = len(table.rows) - table.foot
    begin = _LARGE if last >= LARGE_FROM else "<table>"
    foot = f"<tfoot>\n{_rows(table, last, len(table.rows))}</tfoot>\n" if table.foot else ""
    return (
        f"{scrolling(table.title)}{begin}\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{_rows(table, 0, last)}</tbody>\n{foot}</table></div>\n"
    )


def _rows(table: tables.Table, first: int, last: int) -> str:
    """Rows without the end tags and quotes that HTML does not need: a tenth of a page that is mostly tables."""
    return "".join(
        f"<tr>{''.join(_cell(column, cell) for column, cell in zip(table.columns, row, strict=True))}"
        for row in table.rows[first:last]
    )


def scrolling(label: str) -> str:
    """The start of an area that scrolls sideways, also by the keyboard."""
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{escape(label)}">'


def _heading(column: tables.Column[Any]) -> str:
    if column.bar:
        return '<th scope="col" class="b"><span class="hidden">as a bar</span></th>'
    unit = f" <small>{escape(column.unit)}</small>" if column.unit else ""
    kind = ' class="n"' if column.numeric else ""
    meaning = column.help or COLUMN_TERMS.get(column.title, "")
    kind += " data-step" if column.is_step else ""
    return f'<th scope="col"{kind}>{term(column.title, meaning)}{unit}</th>'


def _cell(column: tables.Column[Any], cell: tables.Cell) -> str:
    if column.bar:
        if not cell.ratio:
            return "<td class=b>"
        width = min(max(cell.ratio, 0.0), 1.0) * 100
        look = (
            "" if cell.key == "forward" else f"{colour(cell.key)};"
        )  # most have that colour, so the style sheet has it
        return f'<td class=b><span class=bar style="{look}width:{width:.3f}%"></span>'
    return f"<td{' class=n' if column.numeric else ''}>{term(cell.text, cell.help)}"
