"""The lists of ``docs/conditions.md`` as Markdown."""

from lightning_gpuprof.model.conditions import ENVIRONMENT, FACTS, GROUPS, HEADER, Fact

BEGIN, END = "<!-- facts: begin -->", "<!-- facts: end -->"
_IF_IT_DIFFERS = {"fixed": "Not comparable", "tested": "Listed", "label": "Ignored"}


def tables() -> str:
    """The facts of each group by what a comparison does if they differ, and the names of the environment variables."""
    parts = []
    for group in GROUPS:
        parts.append(f"### {group}\n")
        for role, meaning in _IF_IT_DIFFERS.items():
            facts = [fact for fact in (*HEADER, *FACTS) if fact.group == group and fact.role == role]
            if facts:
                parts.append(f"{meaning} if it differs:\n\n" + "\n".join(map(_line, facts)) + "\n")
    names = ", ".join(f"`{name}`" for name in ENVIRONMENT)
    parts.append(f"### Environment variables\n\n`env.<NAME>`, group flags, listed, in the hash: {names}.\n")
    return "\n".join(parts)


def _line(fact: Fact) -> str:
    not_hashed = " (not in the hash)" if not fact.hashed and fact.role != "label" else ""
    return f"- `{fact.name}`{not_hashed}: {fact.source}"


def renewed(page: str) -> str:
    """A page with the lists between its two marks put in anew.

    Args:
        page: The page as it is.
    """
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{rest.partition(END)[2]}"
