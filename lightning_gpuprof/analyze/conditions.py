"""Hashes the conditions of runs, lists what differs between two, and says whether they are comparable."""

import hashlib
from collections.abc import Collection, Mapping

import msgspec

from lightning_gpuprof.model.comparison import ConditionChange
from lightning_gpuprof.model.conditions import FIXED_GROUPS, GROUPS, HASH_NAME, FixedGroup, fact_of
from lightning_gpuprof.model.journal import Value

HASH_DIGITS = 12
MAX_NAMED = 4
"""Facts that a reason names; the list of conditions has all."""

_ALWAYS_DIFFERENT = frozenset({"run_id", "started", "slurm.job_id", "gpuprof.baseline", HASH_NAME})
"""Conditions that name the run instead of describing it."""
_CODE = (".built_at", ".built_by")
"""Ends of conditions that are lines of code, which are compared by themselves."""


def conditions_hash(conditions: Mapping[str, Value]) -> str:
    """First digits of a SHA-256 over all facts that matter for speed, by name; equal runs have equal ones.

    What takes part is fixed in :data:`lightning_gpuprof.model.conditions.FACTS`: no names of runs, times, paths,
    commits or seeds.
    """
    taken = sorted((name, value) for name, value in conditions.items() if value is not None and fact_of(name).hashed)
    return hashlib.sha256(msgspec.json.encode(taken)).hexdigest()[:HASH_DIGITS]


def changes(before: Mapping[str, Value], after: Mapping[str, Value]) -> tuple[ConditionChange, ...]:
    """What differs between two runs.

    Args:
        before: Conditions of the earlier run.
        after: Conditions of the later run.

    Returns:
        By group; those that only one run has come last: they may be equal. Empty if nothing differs.
    """
    found = []
    left_out = _ALWAYS_DIFFERENT | ({"world_size"} if "trainer.world_size" in before.keys() & after.keys() else set())
    for name in dict.fromkeys((*before, *after)):
        if name in left_out or name.endswith(_CODE) or before.get(name) == after.get(name):
            continue
        fact = fact_of(name)
        found.append(
            ConditionChange(name=name, before=before.get(name), after=after.get(name), group=fact.group, role=fact.role)
        )
    return tuple(sorted(found, key=lambda one: (None in (one.before, one.after), GROUPS.index(one.group))))


def obstacle(differing: Collection[ConditionChange], allowed: Collection[FixedGroup]) -> str:
    """Why two runs cannot be compared with each other.

    A fact that is known of one run only, as of an earlier version's report, is no reason.

    Args:
        differing: What differs.
        allowed: Groups that may.

    Returns:
        One phrase per group, separated by semicolons; empty if they can be compared.
    """
    reasons = []
    for group, changed in forbidden_groups(differing, allowed).items():
        fixed = [f"{change.name}: {_words(change.before)} -> {_words(change.after)}" for change in changed]
        more = f", and {len(fixed) - MAX_NAMED} more" if len(fixed) > MAX_NAMED else ""
        reasons.append(f"the {group} differs ({', '.join(fixed[:MAX_NAMED])}{more})")
    return "; ".join(reasons)


def forbidden_groups(
    differing: Collection[ConditionChange], allowed: Collection[FixedGroup]
) -> dict[FixedGroup, list[ConditionChange]]:
    """Groups that have to be the same in both runs and are not.

    Args:
        differing: What differs.
        allowed: Groups that may.

    Returns:
        Group -> its changes, of facts that both runs know, in the order of ``FIXED_GROUPS``; none is empty.
    """
    found = {
        group: [
            change
            for change in differing
            if change.group == group and change.role == "fixed" and None not in (change.before, change.after)
        ]
        for group in FIXED_GROUPS
        if group not in allowed
    }
    return {group: changed for group, changed in found.items() if changed}


def _words(value: Value) -> str:
    return str(value) if isinstance(value, bool) or not isinstance(value, int) else f"{value:,}"


def warnings(differing: Collection[ConditionChange], allowed: Collection[FixedGroup]) -> list[str]:
    """What a reader of a comparison must know of the conditions.

    Args:
        differing: What differs.
        allowed: Groups that may.

    Returns:
        Sentences without their full stop; empty if there is nothing to know.
    """
    notes = [
        f"the {group} differs, which was allowed: the speed-up is not from the code alone"
        for group in FIXED_GROUPS
        if group in allowed and any(change.group == group and change.role == "fixed" for change in differing)
    ]
    names = {change.name for change in differing if None not in (change.before, change.after)}
    if "batch.shapes" in names and "loader.batch_size" not in names:
        notes.append("the shapes of the first batch differ: if they do not vary by themselves, the work per step does")
    tested = {change.group for change in differing if change.role == "tested" and change.group != "batch"}
    if len(tested) > 1:
        shown = ", ".join(group for group in GROUPS if group in tested)
        notes.append(f"conditions differ in several respects ({shown}): the difference may come from any of them")
    return notes
