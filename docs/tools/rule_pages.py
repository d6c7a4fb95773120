"""Writes the pages of the built-in rules and their index."""

from pathlib import Path

from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.pages import family, page, sentence

BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"
"""Marks in ``README.md`` between which the index stands."""


def index() -> str:
    """A table of the built-in rules for each family; what the family is about comes from its package's docstring."""
    found: dict[str, list[str]] = {}
    for rule in discover(entry_points=()).rules:
        found.setdefault(family(rule), []).append(f"| [`{rule.id}`]({rule.id}.md) | {sentence(rule)} |")
    parts = []
    for name, rows in sorted(found.items()):
        title, _, about = name.partition(": ")
        intro = f"### {title}\n\n{about[:1].upper()}{about[1:]}\n"
        parts.append("\n".join([intro, "| rule | what it finds |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def write(folder: Path) -> list[Path]:
    """Write the pages of the built-in rules, and the index between its marks in ``README.md`` where there is one.

    Args:
        folder: An existing folder; each page is ``<rule id>.md``.

    Returns:
        The files of the pages, in order of their names.
    """
    written = []
    for rule in discover(entry_points=()).rules:
        path = folder / f"{rule.id}.md"
        path.write_text(page(rule), encoding="utf-8")
        written.append(path)
    readme = folder / "README.md"
    if readme.exists():
        before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
        readme.write_text(f"{before}{BEGIN}\n\n{index()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return written
