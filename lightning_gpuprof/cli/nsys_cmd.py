"""``gpuprof nsys-cmd``: the Nsight command around a training command.

Options as in the user guides of Nsight Systems 2025 and Nsight Compute 2025.
"""

import re
import shlex
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Literal, get_args

import msgspec

from lightning_gpuprof.cli.command import Command, path, print_json
from lightning_gpuprof.errors import ArgumentError, TraceError

Tool = Literal["nsys", "ncu"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

DEFAULT_TRAINING = ("python", "train.py")
DEFAULT_OUTPUT = "gpuprof-%p"
"""Both tools put the process id for ``%p``, so that no earlier report is in the way."""

MAX_KERNELS = 5
_SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy")

_WINDOWS_NOTE = (
    "Only the windows of GpuProfiler are recorded; steps and phases are NVTX ranges in them.",
    "Choose them in the script: GpuProfiler(windows=[(200, 205)]), both ends count; in YAML windows: [[200, 205]].",
    "A script without GpuProfiler: put GPUPROF=1 before the command; one window opens once the run is steady.",
)
_NOTES: dict[Tool, tuple[str, ...]] = {
    "nsys": (*_WINDOWS_NOTE, "Each window is a report of its own, with a number in its name: nsys-ui opens it."),
    "ncu": (
        *_WINDOWS_NOTE,
        "Every kernel of a window is replayed several times: one step is enough, windows=[(200, 200)].",
        "A replayed collective hangs: profile a run on one GPU.",
        "Afterwards: ncu --csv --page raw --import REPORT.ncu-rep > ncu.csv",
        "            gpuprof trace TRACE --ncu ncu.csv --table kernels",
    ),
}

_TWO_STEPS = "Here the first step of a window is skipped: two steps are needed, windows=[(200, 201)]."


class Advice(msgspec.Struct, kw_only=True, frozen=True):
    """A command and what to know of it."""

    tool: Tool
    argv: list[str]
    """Words of the command, not quoted for a shell."""
    notes: list[str]


def _advice(options: Namespace) -> Advice:
    """The command under which a tool records the windows of a training.

    Raises:
        ArgumentError: ``windows`` is not positive, or something is given that the tool does not have.
        TraceError: The trace cannot be read, or has no kernels.
    """
    tool: Tool = options.tool
    windows, of, nvtx_range, operators = options.windows, options.kernels_of, options.nvtx_range, options.operators
    if tool == "nsys" and (of is not None or nvtx_range is not None):
        option, given = ("--kernels-of", str(of)) if of is not None else ("--nvtx-range", nvtx_range)
        raise ArgumentError(option, given, "be left out for nsys", "Add --tool ncu.")
    if windows is not None and windows < 1:
        raise ArgumentError("--windows", windows, "be at least 1", "Leave it out to record all.")
    output = options.output or DEFAULT_OUTPUT
    if tool == "nsys":
        nvtx_of_torch = ["--pytorch=autograd-shapes-nvtx"] if operators else []
        argv = [
            "nsys",
            "profile",
            "--trace=cuda,nvtx,osrt,cudnn,cublas",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=repeat" if windows is None else f"--capture-range-end=repeat:{windows}",
            *nvtx_of_torch,
            f"--output={output}",
        ]
    else:
        if windows is not None:
            raise ArgumentError("--windows", windows, "be left out for ncu", "Choose windows in the script.")
        if operators:
            raise ArgumentError("--operators", True, "be left out for ncu", "It shows kernels.")
        argv = ["ncu", "--profile-from-start", "off", "--target-processes", "all", "--nvtx", "--export", output]
        argv += _counters() if of is None else _heaviest(of)
        if nvtx_range is not None:
            argv += ["--nvtx-include", f"{nvtx_range}/"]
    notes = [*_NOTES[tool], *([_TWO_STEPS] if of is not None else [])]
    return Advice(tool=tool, argv=[*argv, *(options.training or DEFAULT_TRAINING)], notes=notes)


def _counters() -> list[str]:
    """The sections of ncu's own choice, which it leaves out where metrics are named, and what is read of its report."""
    from lightning_gpuprof.trace.nsight_compute import COLLECTED

    sections = [word for name in _SECTIONS for word in ("--section", name)]
    return [*sections, "--metrics", ",".join(COLLECTED)]


def _heaviest(of: Path) -> list[str]:
    """The words that choose the kernels with most time in a trace: their launches of one step, after a first step."""
    from collections import Counter

    from lightning_gpuprof.cli.trace import trace_of
    from lightning_gpuprof.trace.linked import LinkedTrace
    from lightning_gpuprof.trace.nsight_compute import function_of
    from lightning_gpuprof.trace.reader import Trace

    try:
        file = trace_of(of)
    except ArgumentError as error:
        raise ArgumentError("--kernels-of", error.value, error.expected, error.hint) from None
    linked = LinkedTrace(Trace.read(file, frames=False))
    trace = linked.trace
    time_ns: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for name, duration_ns in zip(trace.kernel.name.tolist(), trace.kernel.duration_ns.tolist(), strict=True):
        function = function_of(trace.names[name])
        time_ns[function] += duration_ns
        launches[function] += 1
    chosen = [name for name, _ in time_ns.most_common(MAX_KERNELS)]
    if not chosen:
        raise TraceError(f"{of}: the trace has no kernels.")
    per_step = max(1, sum(launches[name] for name in chosen) // max(1, len(linked.steps)))
    pattern = "|".join(re.escape(name) for name in chosen)
    chosen_launches = ["--launch-skip", str(per_step), "--launch-count", str(per_step)]
    return ["--set", "full", "--kernel-name", f"regex:^({pattern})$", *chosen_launches]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("training", metavar="COMMAND", nargs="*", default=[], help="the training, after --")
    parser.add_argument("--tool", choices=TOOLS, default="nsys", help="nsys: timeline; ncu: single kernels")
    parser.add_argument("--windows", type=int, metavar="N", help="record the first N windows only (nsys)")
    parser.add_argument(
        "--kernels-of",
        metavar="DIR",
        type=path,
        help=f"only the {MAX_KERNELS} kernels with most time in this run or trace (ncu)",
    )
    parser.add_argument("--operators", action="store_true", help="mark torch's operators, as emit_nvtx does (nsys)")
    parser.add_argument("--nvtx-range", metavar="NAME", help="only what is launched in such ranges: forward (ncu)")
    parser.add_argument("--output", type=str, default=DEFAULT_OUTPUT, metavar="NAME", help="report, without suffix")
    parser.add_argument("--json", action="store_true", help="print the command as a JSON list of words")


def _run(options: Namespace) -> int:
    advice = _advice(options)
    if options.json:
        print_json(advice)
    else:  # notes are comments of a shell: all of it can be pasted
        print(*(f"# {note}" for note in advice.notes), shlex.join(advice.argv), sep="\n")
    return 0


COMMAND = Command(
    description=(
        "Prints the command line for NVIDIA's profilers that records the same windows as GpuProfiler's own traces.\n"
        "Under them GpuProfiler opens no traces of its own: a process can have only one tracer. All else is measured\n"
        "as usual."
    ),
    examples=(
        "gpuprof nsys-cmd -- python train.py --config run.yaml",
        "gpuprof nsys-cmd --windows 1 --output first -- python train.py",
        "gpuprof nsys-cmd --tool ncu -- python train.py",
        "gpuprof nsys-cmd --tool ncu --kernels-of lightning_logs/version_0 -- python train.py",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
