"""What a command of ``gpuprof`` is made of: its words for ``--help``, its arguments, its work."""

from __future__ import annotations

import argparse
import itertools
import re
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from lightning_gpuprof.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import NoReturn


class HelpFormatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Paragraphs wrap at the terminal's width; indented lines, which are examples, and empty ones stay as they are.

    Of a default nothing is said where that is to leave something out.
    """

    def add_argument(self, action: argparse.Action) -> None:
        """Make room for names of commands, whose indentation argparse does not count."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for kept, group in itertools.groupby(text.splitlines(), key=lambda line: not line or line.startswith(" ")):
            found = list(group)
            lines += found if kept else textwrap.wrap(" ".join(found), width, break_on_hyphens=False)
        return "\n".join(f"{indent}{line}" for line in lines)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False, "", [], ()) else super()._get_help_string(action)


class CommandParser(ArgumentParser):
    """A parser whose errors are one line of ours and the way to the help, in the words of the help."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with exit code 2.

        Raises:
            SystemExit: Always, with code 2.
        """
        _, _, missing = message.partition("required: ")
        if missing:
            named = {action.metavar: f"{action.metavar} ({action.help})" for action in self._actions if action.help}
            needed = " and ".join(named.get(name, name) for name in missing.split(", "))
            message = f"{self.prog.removeprefix('gpuprof ')} needs {needed}"
        wrong = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if wrong:
            commands = [name for one in self._actions for name in one.choices or ()]
            message = f"there is no command {wrong[1]!r}.{did_you_mean(wrong[1], commands)}"
        if message.endswith("expected one argument"):
            option = message.removeprefix("argument ").partition(":")[0].split("/")[-1]
            message += f"; if it begins with a dash, write {option}=VALUE"
        sys.stderr.write(f"gpuprof: {message}\n  {self.prog} --help shows what it takes\n")
        raise SystemExit(2)

    def parse_known_args(  # type: ignore[no-untyped-def]
        self, args=None, namespace=None
    ):
        """Refuse words that are not known here, where the command is known, rather than in the parser of all.

        Args:
            args: Words.
            namespace: Gets what they mean.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class Command(NamedTuple):
    """One command; ``run`` gives the exit code."""

    description: str
    examples: tuple[str, ...]
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    values: Mapping[str, Callable[[], Sequence[str]]] = MappingProxyType({})
    """Names of arguments -> what they can be, for a shell that completes words; else choices, and files, are."""

    def describe(self, parser: ArgumentParser) -> ArgumentParser:
        """The same parser with the command's words and arguments."""
        parser.description = self.description
        parser.epilog = "\n".join(["examples:", *(f"  {example}" for example in self.examples)])
        self.add_arguments(parser)
        return parser


def print_json(value: object) -> None:
    """Print a value for a program."""
    import msgspec  # not for --help

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def names(text: str) -> tuple[str, ...]:
    """Words with commas between, as the type of an argument."""
    return tuple(name for part in text.split(",") if (name := part.strip()))


def path(text: str) -> Path:
    """A path, as the type of an argument; a shell leaves the ``~`` of ``--option=~/file`` alone."""
    from pathlib import Path

    return Path(text).expanduser()
