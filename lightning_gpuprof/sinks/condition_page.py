"""The list of facts flows in, its page flows out as Markdown: the tables of ``docs/conditions.md``.

``python -m lightning_gpuprof.sinks.condition_page docs/conditions.md`` renews them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lightning_gpuprof.model.conditions import ENVIRONMENT, FACTS, GROUPS, HEADER, Fact

BEGIN, END = "<!-- facts: begin -->", "<!-- facts: end -->"
_MEANINGS = {"fixed": "not comparable", "tested": "listed", "label": "-"}


def tables() -> str:
    """A table for each group, and the names of the environment variables."""
    parts = []
    for group in GROUPS:
        facts = [fact for fact in (*HEADER, *FACTS) if fact.group == group]
        rows = "\n".join(_row(fact) for fact in facts)
        parts.append(f"### {group}\n\n| fact | if it differs | hash | source |\n|---|---|---|---|\n{rows}\n")
    names = ", ".join(f"`{name}`" for name in ENVIRONMENT)
    parts.append(f"### Environment variables\n\n`env.<NAME>`, group flags, listed, in the hash: {names}.\n")
    return "\n".join(parts)


def _row(fact: Fact) -> str:
    return f"| `{fact.name}` | {_MEANINGS[fact.role]} | {'yes' if fact.hashed else '-'} | {fact.source} |"


def renewed(page: str) -> str:
    """A page with the tables between its two marks put in anew.

    Args:
        page: The page as it is.
    """
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str]) -> None:
    """Renew the page that the first argument names."""
    target = Path(arguments[0])
    target.write_text(renewed(target.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
