"""``gpuprof trace``: Kineto trace files flow in, their facts flow out."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from jsonargparse import ArgumentParser, Namespace
from rich.console import Group, RenderableType
from rich.text import Text

from lightning_gpuprof.cli.command import Command
from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks.console import print_to
from lightning_gpuprof.sinks.window_terminal import render


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="trace of torch.profiler, .json or .json.gz")
    parser.add_argument("--json", action="store_true", help="print a JSON list with the facts of each file")


def _run(options: Namespace) -> int:
    return run([Path(name) for name in options.files], as_json=options.json)


def run(files: list[Path], *, as_json: bool = False) -> int:
    """Print the facts of traces.

    Args:
        files: Traces as torch.profiler writes them.
        as_json: Print JSON for a program.

    Returns:
        0.

    Raises:
        GpuProfError: A trace cannot be read; those before it are printed.
    """
    from lightning_gpuprof import pipeline  # numpy and the trace reader: not for --help

    if as_json:
        facts: list[WindowFacts] = [pipeline.trace_facts(path) for path in files]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(facts), indent=1).decode() + "\n")
        return 0
    for path in files:
        parts: list[RenderableType] = [Text(str(path), style="bold"), render(pipeline.trace_facts(path)), Text("")]
        print_to(None, Group(*parts))
    return 0


COMMAND = Command(
    name="trace",
    summary="the facts of any Kineto trace",
    description="Reads traces of torch.profiler and prints what is in them: device time, operators, kernels.",
    examples=("gpuprof trace rank0.1763705000.pt.trace.json.gz", "gpuprof trace *.pt.trace.json.gz --json"),
    add_arguments=_add_arguments,
    run=_run,
)
