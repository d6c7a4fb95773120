"""What a command of ``gpuprof`` is made of: its words for ``--help``, its arguments, its work."""

from __future__ import annotations

import argparse
import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command; ``run`` gives the exit code."""

    name: str
    summary: str
    """One line for the list of commands."""
    description: str
    examples: tuple[str, ...]
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    values: Mapping[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    """Names of arguments -> what they can be, for a shell that completes words; else choices, and files, are."""

    def parser(self) -> ArgumentParser:
        """The command's own parser."""
        examples = "\n".join(f"  {example}" for example in self.examples)
        parser = ArgumentParser(
            description=self.description, epilog=f"examples:\n{examples}", formatter_class=HelpFormatter
        )
        self.add_arguments(parser)
        return parser
