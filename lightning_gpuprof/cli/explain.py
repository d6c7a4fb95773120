"""``gpuprof explain``: the page of a rule; without a rule, the list of all."""

from __future__ import annotations

import shutil
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from lightning_gpuprof.cli.command import Command, print_json

if TYPE_CHECKING:
    from lightning_gpuprof.rules.catalogue import Listed

_WIDTH = 100
"""Columns at the most."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "rule", metavar="RULE", nargs="?", help="id of a rule as findings show it, such as input-bound; none: list all"
    )
    parser.add_argument("--json", action="store_true", help="print rule and page, or the list, as JSON")


def _run(options: Namespace) -> int:
    if options.rule is None:
        from lightning_gpuprof.rules.catalogue import catalogue, families  # and no rule

        rules = catalogue()
        if options.json:
            print_json([{"rule": one.rule, "finds": one.finds} for one in rules])
        else:
            _print_all(families(rules))
        return 0
    from lightning_gpuprof.rules import pages
    from lightning_gpuprof.rules.discovery import about, built_in

    rule = options.rule
    if built_in(rule) is None and rule not in (known := _rules()) and len(near := about(rule, known)) == 1:
        (rule,) = near
    page = pages.explain(rule)
    if options.json:
        print_json({"rule": rule, "page": page})
    elif sys.stdout.isatty():
        from rich.markdown import Markdown  # only where it is drawn: takes as long as all else

        from lightning_gpuprof.sinks.console import print_to

        print_to(None, Markdown(page))
    else:
        sys.stdout.write(page.rstrip("\n") + "\n")
    return 0


def _print_all(families: dict[str, list[Listed]]) -> None:
    """All rules by family, each with what it finds."""
    from lightning_gpuprof.sinks import plain

    names = max(len(plain.name(one.rule)) for family in families.values() for one in family) + 4
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
    for title, family in families.items():
        print(f"\n{plain.visible(title)}")
        for one in family:
            first = f"  {plain.name(one.rule)}".ljust(names)
            print(
                textwrap.fill(
                    plain.visible(one.finds),
                    max(width, 2 * names),
                    initial_indent=first,
                    subsequent_indent=" " * names,
                    break_on_hyphens=False,
                )
            )


def _rules() -> list[str]:
    from lightning_gpuprof.rules.catalogue import catalogue

    return [one.rule for one in catalogue()]


COMMAND = Command(
    description=(
        "Prints the page of a rule: what it means, how it is measured, when it is wrong, what to do.\n"
        "Without a rule it lists all of them."
    ),
    examples=("gpuprof explain", "gpuprof explain input-bound", "gpuprof explain single-process-loading | less"),
    add_arguments=_add_arguments,
    run=_run,
    values={"rule": _rules},
)
