"""``gpuprof explain``: the page of a rule; without a rule, the list of all."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence

from lightning_gpuprof.cli.command import Command, print_json


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "rule", metavar="RULE", nargs="?", help="id of a rule as findings show it, such as input-bound; none: list all"
    )
    parser.add_argument("--json", action="store_true", help="print rule and page, or the list, as JSON")


def _run(options: Namespace) -> int:
    from lightning_gpuprof.rules import pages  # loads all rules: not for --help

    if options.rule is None:
        rules = pages.overview()
        if options.json:
            print_json([{"rule": rule, "finds": finds} for rule, finds in rules.items()])
        else:
            _print_all(pages.families(), rules)
        return 0
    page = pages.explain(options.rule)
    if options.json:
        print_json({"rule": options.rule, "page": page})
    elif sys.stdout.isatty():
        from rich.markdown import Markdown  # only where it is drawn: takes as long as all else

        from lightning_gpuprof.sinks.console import print_to

        print_to(None, Markdown(page))
    else:
        sys.stdout.write(page.rstrip("\n") + "\n")
    return 0


def _print_all(families: Mapping[str, Sequence[str]], rules: Mapping[str, str]) -> None:
    """All rules by family, each with what it finds."""
    from rich.table import Table
    from rich.text import Text

    from lightning_gpuprof.sinks import plain
    from lightning_gpuprof.sinks.console import print_to

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, family in families.items():
        table.add_row(Text(f"\n{plain.visible(title)}", style="bold"), Text(""))
        for rule in family:
            table.add_row(Text(f"  {plain.name(rule)}"), Text(plain.visible(rules[rule])))
    print_to(None, table)


def _rules() -> list[str]:
    from lightning_gpuprof.rules import discovery

    return [rule.id for rule in discovery.discover().rules]


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
