"""The rules of some families."""

from typing import Any

from lightning_gpuprof.rules.discovery import discover


def rules_in(*families: str, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """By id; a family is a folder of rules.

    Args:
        families: Of the rules.
        besides: Ids that are left out.
    """
    found = {rule.id: rule for rule in discover(entry_points=()).rules}
    return {
        name: rule
        for name, rule in found.items()
        if type(rule).__module__.split(".")[2] in families and name not in besides
    }
