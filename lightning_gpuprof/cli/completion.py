"""``gpuprof completion``: a completion script for the user's shell, made from the commands' own parsers.

The script is static: it starts no Python when TAB is pressed. Neither shtab nor argcomplete is needed.
"""

import argparse
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import msgspec

from lightning_gpuprof.cli.command import Command, print_json
from lightning_gpuprof.cli.entries import ENTRIES, Entry

Shell = Literal["bash", "zsh"]
SHELLS: tuple[Shell, ...] = get_args(Shell)

_HELP = ("-h", "--help")
_WORD = re.compile(r"[\w.:@%+,/-]+")
"""What a shell takes for one word as it stands; ids of rules may be other people's."""


class Argument(msgspec.Struct, kw_only=True, frozen=True):
    """An option or a positional argument."""

    names: list[str]
    """Such as ``--json``; of a positional its placeholder."""
    help: str
    takes_value: bool
    values: list[str]
    """What it can be; empty: anything, often a file."""


class CommandWords(msgspec.Struct, kw_only=True, frozen=True):
    """What can follow a command."""

    name: str
    summary: str
    options: list[Argument]
    positionals: list[Argument]
    repeats: bool
    """Whether the last positional may come again."""


def words(entry: Entry) -> CommandWords:
    """What can follow a command, from its parser."""
    command = entry.load()
    options, positionals, repeats = [], [], False
    for action in command.describe(ArgumentParser())._actions:  # argparse has no other way to list them
        argument = Argument(
            names=list(action.option_strings) or [str(action.metavar or action.dest)],
            help=action.help or "",
            takes_value=action.nargs != 0,
            values=[word for word in _values(command, action) if _WORD.fullmatch(word)],
        )
        if action.option_strings:
            options.append(argument)
        else:
            positionals.append(argument)
            repeats = action.nargs in ("+", "*")
    return CommandWords(
        name=entry.name, summary=entry.summary, options=options, positionals=positionals, repeats=repeats
    )


def _values(command: Command, action: argparse.Action) -> Sequence[str]:
    if action.dest in command.values:
        return command.values[action.dest]()
    return [str(choice) for choice in action.choices or ()]


def bash(commands: Sequence[CommandWords]) -> str:
    """A script for bash; where it proposes nothing, bash completes names of files."""
    return "\n".join(
        (
            "# Completion of gpuprof for bash, made by: gpuprof completion bash",
            "_gpuprof() {",
            "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= values=",
            "    COMPREPLY=()",
            "    if (( COMP_CWORD == 1 )); then",
            f"        values={shlex.quote(' '.join([*(one.name for one in commands), *_HELP, '--version']))}",
            '        COMPREPLY=($(compgen -W "$values" -- "$word"))',
            "        return",
            "    fi",
            '    case "${COMP_WORDS[1]} $before" in',
            *_bash_values(commands),
            "    esac",
            '    case "${COMP_WORDS[1]}" in',
            *_bash_commands(commands),
            "    esac",
            "    if [[ $word == -* ]]; then values=$options; fi",
            '    COMPREPLY=($(compgen -W "$values" -- "$word"))',
            "}",
            "complete -o default -F _gpuprof gpuprof",
            "",
        )
    )


def _bash_values(commands: Sequence[CommandWords]) -> Iterator[str]:
    for command in commands:
        for option in command.options:
            if option.takes_value:
                cases = "|".join(shlex.quote(f"{command.name} {name}") for name in option.names)
                values = shlex.quote(" ".join(option.values))
                proposed = f'COMPREPLY=($(compgen -W {values} -- "$word")); ' if option.values else ""
                yield f"        {cases}) {proposed}return ;;"


def _bash_commands(commands: Sequence[CommandWords]) -> Iterator[str]:
    for command in commands:
        options = " ".join(name for option in command.options for name in option.names)
        values = " ".join(word for positional in command.positionals for word in positional.values)
        yield f"        {command.name}) options={shlex.quote(options)} values={shlex.quote(values)} ;;"


def zsh(commands: Sequence[CommandWords]) -> str:
    """A script for zsh, for ``eval`` or as a file ``_gpuprof`` in a folder of ``$fpath``."""
    return "\n".join(
        (
            "#compdef gpuprof",
            "# Completion of gpuprof for zsh, made by: gpuprof completion zsh",
            "_gpuprof() {",
            "    local -a commands",
            "    commands=(",
            *(f"        {_quoted(f'{one.name}:{one.summary}')}" for one in commands),
            "    )",
            "    if (( CURRENT == 2 )); then",
            "        _describe -t commands command commands",
            "        return",
            "    fi",
            "    local command=$words[2]",
            "    shift words",
            "    (( CURRENT-- ))",
            "    case $command in",
            *_zsh_commands(commands),
            "    esac",
            "}",
            'if [[ "$funcstack[1]" == _gpuprof ]]; then _gpuprof "$@"; else compdef _gpuprof gpuprof; fi',
            "",
        )
    )


def _zsh_commands(commands: Sequence[CommandWords]) -> Iterator[str]:
    for command in commands:
        yield f"        {command.name})"
        yield "            _arguments \\"
        for option in command.options:
            for name in option.names:
                yield f"                {_quoted(f'{name}[{_spec(option.help)}]{_zsh_value(option)}')} \\"
        last = len(command.positionals) - 1
        for number, positional in enumerate(command.positionals):
            place = "*" if command.repeats and number == last else str(number + 1)
            yield f"                {_quoted(f'{place}{_zsh_value(positional)}')} \\"
        yield "                && return ;;"


def _zsh_value(argument: Argument) -> str:
    if not argument.takes_value:
        return ""
    action = f"({' '.join(argument.values)})" if argument.values else "_files"
    return f":{_spec(argument.names[-1].lstrip('-'))}:{action}"


def _spec(text: str) -> str:
    """Text inside a specification of ``_arguments``, in which colons and brackets mean something."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_SCRIPTS: dict[Shell, Callable[[Sequence[CommandWords]], str]] = {"bash": bash, "zsh": zsh}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"{' or '.join(SHELLS)}")
    parser.add_argument("--json", action="store_true", help="print the commands and their words as JSON")


def _run(options: Namespace) -> int:
    found = [words(entry) for entry in ENTRIES]
    if options.json:
        print_json(found)
    else:
        sys.stdout.write(_SCRIPTS[options.shell](found))
    return 0


COMMAND = Command(
    description=(
        "Prints a script that completes commands, options, rules and names of tables. It is static: regenerate it\n"
        "after an update. For another shell, --json prints the words."
    ),
    examples=(
        'eval "$(gpuprof completion bash)"                               in ~/.bashrc',
        "gpuprof completion bash > ~/.local/share/bash-completion/completions/gpuprof",
        'eval "$(gpuprof completion zsh)"                                in ~/.zshrc, after compinit',
    ),
    add_arguments=_add_arguments,
    run=_run,
)
