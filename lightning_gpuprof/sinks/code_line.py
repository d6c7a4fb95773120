"""The line of the user's code that a finding is about, as the sampler saw it."""

from collections.abc import Sequence

from lightning_gpuprof.model.code_place import parts
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.sinks import plain


def line_of(finding: Finding, lines: Sequence[LineRow]) -> LineRow | None:
    """The line that a finding's subject names, or the one most seen in the function that it names.

    Frames of a trace have the line of the function's ``def``, so that only the looks know which one waits. None: the
    subject is no place, or its code is not known.

    Args:
        finding: Its subject may be ``train.py:38 training_step`` or ``train.py(31): training_step``.
        lines: Of the report.
    """
    subject = parts(finding.subject)
    if subject is None:
        return None
    known = [row for row in lines if row.code and (at := parts(row.place)) is not None and at.is_in(subject)]
    exact = [row for row in known if row.place == finding.subject]
    return max(exact or known, key=lambda row: row.looks, default=None)


def named(row: LineRow) -> str:
    """``train.py:38``."""
    return plain.name(row.place.partition(" ")[0])
