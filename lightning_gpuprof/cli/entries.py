"""The commands of ``gpuprof`` by name. A command is imported when it runs, so that no other has to wait for it."""

from __future__ import annotations

import importlib
import keyword
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lightning_gpuprof.cli.command import Command


class Entry(NamedTuple):
    """A command in the list of all."""

    name: str
    summary: str
    takes_program: bool = False
    """Whether the words after ``--`` are another program's; its ``run`` gets them as ``program``."""

    def load(self) -> Command:
        """Import it."""
        module = self.name.replace("-", "_") + ("_" if keyword.iskeyword(self.name) else "")
        found: Command = importlib.import_module(f"lightning_gpuprof.cli.{module}").COMMAND
        return found


ENTRIES = (
    Entry(name="report", summary="rebuild a run's report from its folder"),
    Entry(name="compare", summary="compare a later run with an earlier one (exit code 1: slower)"),
    Entry(name="export", summary="a run's steps, samples and findings as CSV or Parquet tables"),
    Entry(name="explain", summary="what a rule's finding means, how it is measured and what to do"),
    Entry(name="doctor", summary="what can be measured on this machine, and what is missing"),
    Entry(name="trace", summary="analyse any torch.profiler trace"),
    Entry(name="nsys-cmd", summary="the command that records the same windows with Nsight Systems or Compute"),
    Entry(name="ranks", summary="which rank of a job fails, hangs or is late, also while it runs"),
    Entry(name="merge", summary="join the folders of hosts without a shared file system"),
    Entry(name="trigger", summary="trace the next steps of a running job"),
    Entry(name="try", summary="measure what each piece of advice actually gains", takes_program=True),
    Entry(name="completion", summary="TAB completion for bash, zsh, fish and other shells"),
)
