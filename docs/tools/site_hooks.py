"""The hooks of ``mkdocs.yml``: the navigation is read off the folders, so that a new page needs no list.

In ``nav`` the entry ``numbers/*`` stands for all pages of a folder, ``rules/*`` for the rules by family as
``rules/README.md`` lists them, and ``*`` for the pages that ``nav`` does not name.
"""

import re
from pathlib import Path
from typing import Any

Nav = list[Any]

_NO_RUN = re.compile(r"^( *```\w+) no-run$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """What mkdocs calls once its configuration is read."""
    config.nav = expanded(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What mkdocs calls with each page: the mark of examples that do not run is for the tests, and no Markdown."""
    return _NO_RUN.sub(r"\1", markdown)


def expanded(nav: Nav, docs: Path) -> Nav:
    """The navigation with its wildcards replaced.

    Args:
        nav: As in ``mkdocs.yml``.
        docs: The folder of the pages.
    """
    named = set(_names(nav))

    def entries(item: Any) -> Nav:
        if isinstance(item, dict):
            return [{title: _all(value) if isinstance(value, list) else value for title, value in item.items()}]
        if item == "rules/*":
            return _rules(docs)
        if item == "*":
            return [page.name for page in sorted(docs.glob("*.md")) if page.name not in named]
        if isinstance(item, str) and item.endswith("/*"):
            folder = item.removesuffix("/*")
            return [f"{folder}/{page.name}" for page in _pages(docs / folder) if f"{folder}/{page.name}" not in named]
        return [item]

    def _all(items: Nav) -> Nav:
        return [entry for item in items for entry in entries(item)]

    return _all(nav)


def _names(nav: Nav) -> list[str]:
    """Pages that a navigation names."""
    found: list[str] = []
    for item in nav:
        values = list(item.values()) if isinstance(item, dict) else [item]
        for value in values:
            found += _names(value) if isinstance(value, list) else [value]
    return found


def _pages(folder: Path) -> list[Path]:
    """Pages of a folder by name, its index first."""
    return sorted(folder.glob("*.md"), key=lambda page: (page.name != "index.md", page.name))


def _rules(docs: Path) -> Nav:
    """A section for each family of rules."""
    text = (docs / "rules" / "README.md").read_text(encoding="utf-8")
    nav: Nav = ["rules/README.md"]
    for family in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        title = family.partition("\n")[0]
        pages = re.findall(r"^\| \[`[a-z0-9-]+`\]\(([a-z0-9-]+\.md)\)", family, re.MULTILINE)
        nav.append({title: [f"rules/{page}" for page in pages]})
    return nav
