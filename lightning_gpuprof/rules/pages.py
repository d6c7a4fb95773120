"""Renders the pages of rules as Markdown, for ``gpuprof explain`` and ``docs/rules/``."""

import dataclasses
import importlib
import inspect
import re
import sys

from lightning_gpuprof.rules.base import Rule, source_of
from lightning_gpuprof.rules.discovery import discover, find, no_such_rule
from lightning_gpuprof.rules.examples import listed


def explain(rule_id: str) -> str:
    """The page of a rule: what it means, how it is measured, when it is wrong, what to do, an example.

    Args:
        rule_id: Id of a built-in rule or of one that another package has added.

    Returns:
        Markdown that ends with a newline.

    Raises:
        ArgumentError: There is no such rule; the message names the closest ones and how to list all.
    """
    rule = find(rule_id)
    if rule is None:
        raise no_such_rule("rule", rule_id, "be the id of a rule", (one.id for one in discover().rules))
    return page(rule)


def page(rule: Rule) -> str:
    """One rule's page: its docstring under its id, and its thresholds with their sources."""
    examples = getattr(rule, "examples", ())
    shown = f"\n{listed(examples)}" if examples else ""
    return f"# {rule.id}\n\n{_text(rule)}\n{shown}{_thresholds(rule)}"


def family(rule: Rule) -> str:
    """What the family of a built-in rule is about: its package's docstring."""
    package = importlib.import_module(type(rule).__module__.rpartition(".")[0])
    return inspect.getdoc(package) or package.__name__


def sentence(rule: Rule) -> str:
    """What a rule finds."""
    return " ".join(_text(rule).partition("\n\n")[0].split())


def _text(rule: Rule) -> str:
    if sys.flags.optimize > 1:  # what a dataclass puts in the place of a docstring is no description
        return "The description is a docstring, and python -OO leaves those out: run it without -OO.\n"
    text = inspect.getdoc(type(rule)) or "This rule has no description."
    return re.sub(r"(?m)^(## .+\n)(?!\n)", r"\1\n", text)


def _thresholds(rule: Rule) -> str:
    if not dataclasses.is_dataclass(rule) or not dataclasses.fields(rule):
        return ""
    rows = [
        f"- `{field.name}` {getattr(rule, field.name)} ({source_of(type(rule), field.name)})"
        for field in dataclasses.fields(rule)
    ]
    return "\n".join(["", "## Thresholds", "", *rows, ""])
