"""The lists of ``docs/conditions.md`` as Markdown."""

from collections.abc import Sequence

from lightning_gpuprof.model.conditions import ENVIRONMENT, FACTS, GROUPS, HEADER, Fact

BEGIN, END = "<!-- facts: begin -->", "<!-- facts: end -->"
_IF_IT_DIFFERS = {"fixed": "Not comparable", "tested": "Listed", "label": "Ignored"}


def tables() -> str:
    """The facts of each group by what a comparison does if they differ, and the names of the environment variables.

    A star after a fact: it takes no part in the hash.
    """
    parts = []
    for group in GROUPS:
        parts.append(f"### {group}\n")
        for role, meaning in _IF_IT_DIFFERS.items():
            facts = [fact for fact in (*HEADER, *FACTS) if fact.group == group and fact.role == role]
            if facts:
                parts.append(f"{meaning} if it differs:\n\n" + "\n".join(_lines(facts)) + "\n")
    names = ", ".join(f"`{name}`" for name in ENVIRONMENT)
    parts.append(f"### Environment variables\n\n`env.<NAME>`, group flags, listed, in the hash: {names}.\n")
    return "\n".join(parts)


def _lines(facts: Sequence[Fact]) -> list[str]:
    """A line for each source, with the facts that are read there."""
    names: dict[str, list[str]] = {}
    for fact in facts:
        source = "as of the loader" if fact.name.startswith("val_loader.") else fact.source
        names.setdefault(source, []).append(f"`{fact.name}`" + ("" if fact.hashed or fact.role == "label" else "*"))
    return [f"- {', '.join(found)}: {source}" for source, found in names.items()]


def renewed(page: str) -> str:
    """A page with the lists between its two marks put in again.

    Args:
        page: The page as it is.
    """
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"
