"""The error for an unknown rule: it names the closest, and how to list all."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lightning_gpuprof.errors import ArgumentError

MAX_NAMED = 3
LIST_ALL = "gpuprof explain without a rule lists all."


def no_such_rule(argument: str, rule_id: object, expected: str, known: Iterable[str]) -> ArgumentError:
    """The error for an id that is not among those of the rules.

    Args:
        argument: Name of the argument as the user writes it.
        rule_id: What was given.
        expected: What the argument must do, as a phrase that the closest rules can follow.
        known: Ids of all rules.
    """
    near = difflib.get_close_matches(str(rule_id), list(known), n=MAX_NAMED, cutoff=0.5)
    if not near:
        return ArgumentError(argument, rule_id, expected, LIST_ALL)
    meant = f"Did you mean {near[0]!r}? {LIST_ALL}"
    return ArgumentError(argument, rule_id, f"{expected}, such as {', '.join(near)}", meant)
