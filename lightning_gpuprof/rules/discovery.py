"""Finds the rules in a package and its entry points."""

import functools
import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Protocol, cast

import msgspec

from lightning_gpuprof import rules as own_rules
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.installed import Installed
from lightning_gpuprof.model.finding import NotEvaluated
from lightning_gpuprof.rules.base import Rule
from lightning_gpuprof.rules.files import ENTRY_POINTS, modules_of


class EntryPoint(Protocol):
    """What is needed of an entry point."""

    @property
    def name(self) -> str:
        """Name under which the package registered it."""
        ...

    def load(self) -> object:
        """Import what the entry point names."""
        ...


class Discovered(msgspec.Struct, frozen=True, kw_only=True):
    """Rules in order of their ids, and what could not be loaded."""

    rules: tuple[Rule, ...]
    failed: tuple[NotEvaluated, ...]


def discover(*, package: ModuleType = own_rules, entry_points: Iterable[EntryPoint] | None = None) -> Discovered:
    """Find all rules.

    A rule is a class with a text ``id`` and a method ``check`` that is defined in a module of the package, or that an
    entry point names; it is made without arguments. What cannot be imported or made, and an id that is taken, is
    reported and left out.

    Args:
        package: Each module of the packages directly in it is looked through.
        entry_points: Default: those installed under :data:`ENTRY_POINTS`.

    Returns:
        Rules in the order of their ids; what was left out with its reason, in the order in which it was met.
    """
    found: dict[str, Rule] = {}
    failed: list[NotEvaluated] = []

    def add(where: str, rule_class: type) -> None:
        try:
            rule = cast(Rule, rule_class())
        except Exception as error:  # another package's code: it must not stop the report
            failed.append(NotEvaluated(rule=where, why=f"failed to load: {describe(error)}"))
            return
        if rule.id in found:
            failed.append(NotEvaluated(rule=where, why=f"the rule id {rule.id} is taken"))
            return
        found[rule.id] = rule

    for where, _ in modules_of(package):
        try:
            classes = list(_rule_classes(importlib.import_module(where)))
        except Exception as error:
            failed.append(NotEvaluated(rule=where, why=f"failed to load: {describe(error)}"))
            continue
        for rule_class in classes:
            add(where, rule_class)
    for point in Installed().entry_points(ENTRY_POINTS) if entry_points is None else entry_points:
        try:
            loaded = point.load()
        except Exception as error:
            failed.append(NotEvaluated(rule=point.name, why=f"failed to load: {describe(error)}"))
            continue
        if isinstance(loaded, type) and _is_rule(loaded):
            add(point.name, loaded)
        else:
            failed.append(NotEvaluated(rule=point.name, why=f"failed to load: {loaded!r} is not a rule class"))
    return Discovered(rules=tuple(found[rule_id] for rule_id in sorted(found)), failed=tuple(failed))


def find(rule_id: str) -> Rule | None:
    """The rule of this id, None if there is none; a built-in one is looked for in the module of its name alone."""
    return built_in(rule_id) or next((rule for rule in discover().rules if rule.id == rule_id), None)


def built_in(rule_id: str) -> Rule | None:
    """The rule of this id of our own, None if there is none; it alone is imported."""
    module = rule_id.replace("-", "_")
    for where, _ in modules_of(own_rules):
        if where.rpartition(".")[2] == module:
            for rule_class in _rule_classes(importlib.import_module(where)):
                if (rule := cast(Rule, rule_class())).id == rule_id:
                    return rule
    return None


@functools.cache
def installed() -> Discovered:
    """All rules of this process, looked for once: some 15 ms, which each of many short fits would pay."""
    return discover()


def describe(error: Exception) -> str:
    """An exception in one line: ``ValueError: no such column``."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def _rule_classes(module: ModuleType) -> Iterator[type]:
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == module.__name__ and _is_rule(value):
            yield value


def _is_rule(candidate: type) -> bool:
    return isinstance(getattr(candidate, "id", None), str) and callable(getattr(candidate, "check", None))


MAX_NAMED = 3
MIN_ALIKE = 0.75
"""Of a misspelled id and the one that was meant; what is less alike is another thing."""
LIST_ALL = "gpuprof explain without a rule lists all."


def about(given: str, known: Iterable[str]) -> list[str]:
    """Ids of rules that have words of an unknown one.

    Args:
        given: The id.
        known: Ids of all rules.

    Returns:
        All that share a word, those with most of them first, equals by name; empty if none does.
    """
    words = {word for word in given.lower().split("-") if len(word) > 1}
    shared = {one: len(words & set(one.split("-"))) for one in sorted(known)}
    return sorted((one for one in shared if shared[one]), key=lambda one: -shared[one])


def no_such_rule(argument: str, rule_id: object, expected: str, known: Iterable[str]) -> ArgumentError:
    """The error for an id that is not among those of the rules.

    Args:
        argument: Name of the argument as the user writes it.
        rule_id: What was given.
        expected: What the argument must do.
        known: Ids of all rules.

    Returns:
        To be raised by the caller; it names up to three similar ids.
    """
    import difflib  # for mistakes only

    given, ids = str(rule_id), sorted(known)
    misspelled = difflib.get_close_matches(given, ids, n=MAX_NAMED, cutoff=MIN_ALIKE)
    near = misspelled or about(given, ids)[:MAX_NAMED]
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return ArgumentError(argument, rule_id, expected, meant + LIST_ALL)
