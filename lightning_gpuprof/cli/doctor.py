"""``gpuprof doctor``: what can be measured on this machine, and why not."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from lightning_gpuprof.cli.command import Command, print_json

if TYPE_CHECKING:
    from lightning_gpuprof.cli.check import Check, State

LOAD = "gpuprof doctor --load also imports torch and TensorBoard's tab, which takes seconds."


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--load", action="store_true", help="import torch and TensorBoard's tab, too: do they work?")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def _run(options: Namespace) -> int:
    from lightning_gpuprof.cli.doctor_checks import examine  # as below: not for a shell's completion

    checks = examine(load=options.load)
    if options.json:
        print_json(checks)
    else:
        _print(checks, loaded=options.load)
    return 0


def _print(checks: list[Check], *, loaded: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    from lightning_gpuprof.cli.doctor_checks import conclusion
    from lightning_gpuprof.sinks import plain
    from lightning_gpuprof.sinks.console import print_to

    for line in conclusion(checks):
        print_to(None, Text(plain.sentence(line), style="bold"))
    if not loaded:
        print_to(None, Text(LOAD))
    print_to(None, Text(""))
    styles: dict[State, str] = {"ok": "green", "absent": "yellow", "problem": "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=36)
    table.add_column(overflow="fold")
    for check in sorted(checks, key=lambda check: check.state == "ok"):
        text = ": ".join(plain.sentence(part) for part in (check.value, check.meaning) if part)
        table.add_row(Text(check.state, style=styles[check.state]), Text(plain.name(check.name)), Text(text))
    print_to(None, table)


COMMAND = Command(
    description=(
        "Checks Python, packages, host, CUDA, CUPTI, NVML and plugins. A missing part is not an error (exit code 0)."
    ),
    examples=("gpuprof doctor", "gpuprof doctor --load", "gpuprof doctor --json"),
    add_arguments=_add_arguments,
    run=_run,
)
