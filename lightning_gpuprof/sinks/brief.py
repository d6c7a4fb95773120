"""One line in place of a summary and a page, for a run too short to judge."""

import sys
from pathlib import Path

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.report import MIN_STEADY_STEPS, Report
from lightning_gpuprof.sinks import plain, wording

MIN_STEPS = MIN_STEADY_STEPS + 10
"""The first steps of a run are slower than the others."""
LONGEST_S = 10.0
"""Of a run that took longer, a page costs little, and its phases say something even without a verdict."""


def is_enough(report: Report) -> bool:
    """Whether there is nothing else to say: few steps within seconds, no verdict, no trace, nothing to warn of."""
    return (
        report.verdict.kind == "not-enough-data"
        and report.wall.total_s < LONGEST_S
        and not report.windows
        and all(finding.severity == "info" for finding in report.findings)
    )


def print_lines(report: Report, folder: Path) -> None:
    """Print what can be said of such a run, and how to have the whole report all the same.

    Args:
        report: The report.
        folder: Of the run.
    """
    stage, steps = wording.stage(report), report.steps.count
    ran = f"{numbers.counted(steps, 'step')} in {numbers.seconds(report.wall.total_s)}"
    text = (
        f"Too short to judge ({ran}). Run at least {MIN_STEPS}." if steps else f"No step of this {stage} was measured."
    )
    text += "".join(f" {numbers.capital(plain.sentence(end))}." for end in report.rank_ends)
    text = f"gpuprof: {text} All numbers: gpuprof report {plain.visible(str(folder))} --all"
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, errors="replace").decode(encoding))
