"""What a command of ``gpuprof`` is made of: its words for ``--help``, its arguments, its work."""

from __future__ import annotations

import argparse
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace


class HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Paragraphs wrap at the terminal's width; indented lines, which are examples, and empty ones stay as they are.

    Of a default nothing is said where that is to leave something out.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for kept, group in itertools.groupby(text.splitlines(), key=lambda line: not line or line.startswith(" ")):
            found = list(group)
            lines += found if kept else textwrap.wrap(" ".join(found), width, break_on_hyphens=False)
        return "\n".join(f"{indent}{line}" for line in lines)

    def _get_help_string(self, action: argparse.Action) -> str:
        return action.help or "" if action.default in (None, False, "", []) else super()._get_help_string(action)


class CommandParser(ArgumentParser):
    """A parser whose errors are one line of ours and the way to the help, in the words of the help.

    Args:
        arguments: Those of jsonargparse's parser.
        options: Likewise.
    """

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong and end with exit code 2.

        Args:
            message: In the words of jsonargparse.
            ex: What it came from.

        Raises:
            SystemExit: Always, with code 2.
        """
        parser = getattr(ex, "subcommand_parser", None) or self
        named = {
            ("" if own is parser else own.prog.rpartition(" ")[2], action.dest): f"{action.metavar} ({action.help})"
            for own in (parser, *_below(parser))
            for action in own._actions
            if action.metavar and not action.option_strings
        }
        prog = parser.prog.replace(" [options]", "")
        _, _, missing = message.partition("required: ")
        if missing:
            wanted = [name.strip().rpartition(".") for name in missing.split(",")]
            message = f"missing: {'; '.join(named.get((command, name), name) for command, _, name in wanted)}"
            prog = f"{prog} {wanted[0][0]}".rstrip()
        sys.stderr.write(f"gpuprof: {message}\n  {prog} --help shows what it takes\n")
        raise SystemExit(2)


def _below(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parsers of the commands."""
    for action in parser._actions:
        if isinstance(choices := action.choices, dict):
            yield from (one for one in choices.values() if isinstance(one, ArgumentParser))


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command; ``run`` gives the exit code."""

    description: str
    examples: tuple[str, ...]
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    values: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    """Names of arguments -> what they can be, for a shell that completes words; else choices, and files, are."""

    def parser(self) -> ArgumentParser:
        """The command's own parser."""
        examples = "\n".join(f"  {example}" for example in self.examples)
        parser = CommandParser(
            description=self.description, epilog=f"examples:\n{examples}", formatter_class=HelpFormatter
        )
        self.add_arguments(parser)
        return parser
