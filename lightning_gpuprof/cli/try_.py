"""``gpuprof try``: measures what each piece of advice actually gains."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_gpuprof.cli.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 45.0


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "tried",
        nargs="?",
        metavar="RUN",
        type=Path,
        help="run whose advice is tried; default: the newest run of the same script below this folder",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="training time in all, in seconds")
    parser.add_argument(
        "--arm",
        action="append",
        default=[],
        metavar="NAME=V[,V...]",
        help="values of a setting to try in place of the advice; an unknown name lists all; may be given several times",
    )
    parser.add_argument("--input", action="store_true", help="search for the loader's best settings")
    parser.add_argument(
        "--patch", action="store_true", help="print what is worth it as a diff of your files; the table goes to stderr"
    )
    parser.add_argument("--write", action="store_true", help="apply that diff")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _run(options: Namespace) -> int:
    from lightning_gpuprof.cli import try_run  # not for --help

    return try_run.run(options)


def _names() -> Sequence[str]:
    from lightning_gpuprof.trial.arms import NAMES, VARIABLE

    return [*(f"{name}=" for name in NAMES), VARIABLE]


COMMAND = Command(
    description=(
        "Runs a training for a minute, changes one setting at a time while it runs, and measures what each really "
        "gains. The program ends by itself: nothing is logged or saved, and your files stay as they are.\n"
        "Two ceilings are always measured: one batch replayed (a perfect loader), and nothing around the model "
        "(no callbacks, logging, progress bar)."
    ),
    examples=(
        "gpuprof try -- python train.py --config my.yaml",
        "gpuprof try runs/digits/version_0 -- python -m examples.digits fit --config configs/digits.yaml",
        "gpuprof try --arm num_workers=1,2,4 --arm precision=bf16-mixed -- python train.py",
        "gpuprof try --arm without=LearningRateMonitor -- python train.py",
        "gpuprof try --arm env:OMP_NUM_THREADS=1,2 --arm batch_size=64,128 -- python train.py",
        "gpuprof try --input -- python train.py           the loader's best settings",
        "gpuprof try runs/digits/version_0 --patch        what was worth it, as a diff",
    ),
    add_arguments=_add_arguments,
    run=_run,
    values={"arm": _names},
)
