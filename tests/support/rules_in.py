"""The rules of some families."""

from typing import Any

from lightning_gpuprof.rules.discovery import discover


def rules_in(*families: str, besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """By id; a family is a folder of rules.

    Args:
        families: Of the rules.
        besides: Ids that are left out.
    """
    found = {rule.id: (type(rule).__module__.split(".")[2], rule) for rule in discover(entry_points=()).rules}
    assert {*families} <= {family for family, _ in found.values()}
    assert {*besides} <= {*found}
    return {name: rule for name, (family, rule) in found.items() if family in families and name not in besides}
