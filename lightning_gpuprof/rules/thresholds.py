"""Applies a user's thresholds to the rules."""

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.conditions import THRESHOLDS
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.rules.base import Rule, Value
from lightning_gpuprof.rules.discovery import no_such_rule

Thresholds = Mapping[str, Mapping[str, float]]
"""Rule id -> name of the threshold -> value, in the unit that the name ends with."""


def with_thresholds(rules: Sequence[Rule], thresholds: Thresholds) -> tuple[Rule, ...]:
    """The same rules, with some of their thresholds replaced.

    Args:
        rules: All rules.
        thresholds: What differs.

    Returns:
        In the same order; those without a new threshold are the same objects.

    Raises:
        ArgumentError: There is no such rule or threshold, or the value is no finite number of at least 0; the message
            names the closest rules, or all thresholds of the rule.
    """
    if not isinstance(thresholds, Mapping):
        raise ArgumentError("thresholds", thresholds, "be a mapping of rules", _WAY_OUT)
    by_id = {rule.id: rule for rule in rules}
    for rule_id, values in thresholds.items():
        if rule_id not in by_id:
            raise no_such_rule("thresholds", rule_id, "name rules", by_id)
        if not isinstance(values, Mapping):
            raise ArgumentError(f"thresholds.{rule_id}", values, "be a mapping of thresholds", _WAY_OUT)
        by_id[rule_id] = _replaced(by_id[rule_id], values)
    return tuple(by_id[rule.id] for rule in rules)


def thresholds_of(run: Mapping[str, Value]) -> dict[str, dict[str, float]]:
    """The thresholds that a run was given, out of its conditions."""
    found: dict[str, dict[str, float]] = {}
    for name, value in run.items():
        if name.startswith(THRESHOLDS) and isinstance(value, (int, float)):
            rule_id, _, threshold = name.removeprefix(THRESHOLDS).rpartition(".")
            found.setdefault(rule_id, {})[threshold] = value
    return found


def applied(rules: Sequence[Rule], run: Mapping[str, Value]) -> tuple[tuple[Rule, ...], list[NotEvaluated]]:
    """Rules with the thresholds that the run was given; those that do not fit (any more) are reported and left out.

    Args:
        rules: All rules, with their own thresholds.
        run: Conditions of the run by name; those that begin with ``gpuprof.threshold.`` are read.

    Returns:
        Rules in the same order, and one entry per threshold that is not used.
    """
    known, problems = tuple(rules), []
    for rule_id, values in thresholds_of(run).items():
        for name, value in values.items():
            try:
                known = with_thresholds(known, {rule_id: {name: value}})
            except ArgumentError as error:
                problems.append(NotEvaluated(rule=rule_id, why=f"a given threshold is not used: {error}"))
    return known, problems


_WAY_OUT = 'Write {"input-bound": {"least_ratio": 0.1}}; gpuprof explain RULE lists a rule\'s thresholds.'


def _replaced(rule: Rule, values: Mapping[str, float]) -> Rule:
    fields: dict[str, object] = {}
    if dataclasses.is_dataclass(rule):
        fields = {field.name: field for field in dataclasses.fields(rule)}
    for name, value in values.items():
        argument = f"thresholds.{rule.id}"
        if name not in fields:
            known = ", ".join(fields) or "this rule has none"
            raise ArgumentError(argument, name, f"name thresholds of the rule: {known}", _meant(name, fields))
        whole = isinstance(getattr(rule, name), int)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
            raise ArgumentError(f"{argument}.{name}", value, "be a finite number of at least 0")
        if whole and value != int(value):
            raise ArgumentError(f"{argument}.{name}", value, "be a whole number")
        rule = cast(Rule, dataclasses.replace(cast(Any, rule), **{name: int(value) if whole else float(value)}))
    return rule


def _meant(name: object, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else ""
