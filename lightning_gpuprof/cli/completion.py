"""``gpuprof completion``: a static script for the user's shell, which starts no Python when TAB is pressed."""

import argparse
import re
import sys
from argparse import ArgumentParser, Namespace

import shtab

from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.cli.main import ENTRIES, make_parser

_WORD = re.compile(r"[\w.:@%+,/-]+")
"""What a shell takes for one word as it stands; ids of rules may be other people's."""


def script(shell: str) -> str:
    """A script for one of shtab's shells, such as ``bash``."""
    parser = make_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for entry in ENTRIES:
        values = entry.load().values
        for action in commands.choices[entry.name]._actions:  # argparse has no other way to list them
            if action.dest in values:
                action.choices = [word for word in values[action.dest]() if _WORD.fullmatch(word)]
            elif action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE
    return shtab.complete(parser, shell)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "shell", metavar="SHELL", choices=shtab.SUPPORTED_SHELLS, help=" or ".join(shtab.SUPPORTED_SHELLS)
    )
    parser.add_argument("--json", action="store_true", help="print the script as JSON")


def _run(options: Namespace) -> int:
    text = script(options.shell)
    if options.json:
        print_json({"shell": options.shell, "script": text})
    else:
        sys.stdout.write(text)
    return 0


COMMAND = Command(
    description=(
        "Prints a script that completes commands, options, rules and names of tables. It is static: regenerate it\n"
        "after an update."
    ),
    examples=(
        'eval "$(gpuprof completion bash)"                               in ~/.bashrc',
        "gpuprof completion bash > ~/.local/share/bash-completion/completions/gpuprof",
        'eval "$(gpuprof completion zsh)"                                in ~/.zshrc, after compinit',
        "gpuprof completion fish > ~/.config/fish/completions/gpuprof.fish",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
