"""What a command of ``gpuprof`` is made of: its words for ``--help``, its arguments, its work."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace


class HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Leaves the lines of descriptions and examples as they are written."""


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

    def parser(self) -> ArgumentParser:
        """The command's own parser."""
        examples = "\n".join(f"  {example}" for example in self.examples)
        parser = ArgumentParser(
            description=self.description, epilog=f"examples:\n{examples}", formatter_class=HelpFormatter
        )
        self.add_arguments(parser)
        return parser
