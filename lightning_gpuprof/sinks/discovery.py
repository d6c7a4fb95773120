"""Finds what writes files: a sink is found by its kind, those of other packages by their entry points."""

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Protocol, cast

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.config import OWN_KINDS, SINKS, ReportKind
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.files import write_whole


class Sink(Protocol):
    """Writes files of one kind; made without arguments."""

    label: str
    """What people call it: ``HTML``."""

    def write_report(self, report: Report, folder: Path) -> Path:
        """Write a report into a folder.

        Args:
            report: The report.
            folder: An existing folder.

        Returns:
            The file that was written; people are shown its path.

        Raises:
            ReportError: The file cannot be written.
        """
        ...

    def write_comparison(self, comparison: Comparison, folder: Path) -> Path:
        """The same for a comparison of two runs.

        Args:
            comparison: The comparison.
            folder: An existing folder.

        Returns:
            The file that was written; people are shown its path.

        Raises:
            ReportError: The file cannot be written.
        """
        ...


class _Json:
    label = "JSON"

    def write_report(self, report: Report, folder: Path) -> Path:
        from lightning_gpuprof.sinks import json_report

        json_report.write(report, folder / json_report.FILE_NAME)
        return folder / json_report.FILE_NAME

    def write_comparison(self, comparison: Comparison, folder: Path) -> Path:
        from lightning_gpuprof.sinks import json_report

        write_whole(folder / "comparison.json", json_report.encode(comparison))
        return folder / "comparison.json"


class _Html:
    label = "HTML"

    def write_report(self, report: Report, folder: Path) -> Path:
        from lightning_gpuprof.sinks import html  # and all its tables: a short run wants none

        html.write(report, folder / html.FILE_NAME)
        return folder / html.FILE_NAME

    def write_comparison(self, comparison: Comparison, folder: Path) -> Path:
        from lightning_gpuprof.sinks import comparison_html

        write_whole(folder / "comparison.html", comparison_html.render_html(comparison).encode())
        return folder / "comparison.html"


_OWN: dict[ReportKind, type[Sink]] = {"json": _Json, "html": _Html}


def sinks(kinds: Iterable[ReportKind]) -> Iterator[Sink]:
    """The sinks of some kinds; ``terminal`` and ``tensorboard`` write no files of their own.

    Raises:
        ReportError: The sink of another package cannot be loaded, or there is none.
    """
    for kind in kinds:
        if kind in _OWN:
            yield _OWN[kind]()
        elif kind not in OWN_KINDS:
            yield _installed(kind)


def _installed(kind: ReportKind) -> Sink:
    for point in metadata.entry_points(group=SINKS, name=kind):
        try:
            return cast(Sink, point.load()())
        except Exception as error:  # another package's code: it must not stop the report
            raise ReportError(f"the sink {kind} cannot be loaded: {type(error).__name__}: {error}") from error
    raise ReportError(f"no installed package has a sink {kind}. Install it, or leave it out of reports")
