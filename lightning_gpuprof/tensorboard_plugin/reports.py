"""Builds the report of a run off the request, keeps it while current, bounded in number and bytes."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lightning_gpuprof.errors import GpuProfError, ReportError
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles

MAX_REPORTS = 16
MAX_KEPT_BYTES = 128 << 20
MAX_READ_BYTES = 96 << 20
"""A report of so much journal takes a few seconds and below 1 GB; a larger one is made by ``gpuprof report``."""
BYTES_PER_JSON_BYTE = 4
"""What a report takes in memory, by the length of its JSON."""
PAUSE_PER_MAKING = 8.0
"""A report of a run that goes on is made again after so many times as long as the last one took, at the earliest."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A report, and which state of the files it shows."""

    report: Report
    version: str


@dataclass(frozen=True, kw_only=True)
class Pending:
    """The report is being made; ask again."""

    why: str


@dataclass(kw_only=True)
class _Kept:
    """The last that was made of a run: a report or why there is none."""

    version: str
    report: Report | None
    problem: str
    size_bytes: int
    due_s: float
    """Not made again before, on the clock of the reports."""


class Reports:
    """Reports by run, the least recently used dropped first.

    Args:
        on_made: Called with each report that was made.
        most_reports: That are kept.
        most_kept_bytes: Memory of all that are kept, as estimated from their JSON.
        most_read_bytes: Size of a run's files beyond which no report is made of them.
        now: Seconds on a clock that only goes forward.
    """

    def __init__(
        self,
        on_made: Callable[[RunFiles, Report], None] = lambda files, report: None,
        *,
        most_reports: int = MAX_REPORTS,
        most_kept_bytes: int = MAX_KEPT_BYTES,
        most_read_bytes: int = MAX_READ_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_made = on_made
        self._most_reports = most_reports
        self._most_kept_bytes = most_kept_bytes
        self._most_read_bytes = most_read_bytes
        self._now = now
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._under_way: dict[str, threading.Event] = {}

    def current(self, files: RunFiles) -> str | None:
        """The version of the report that :meth:`of` would give at once; None if it has to be made first."""
        with self._lock:
            kept = self._kept.get(str(files.folder))
            return kept.version if kept and not kept.problem and self._serves(kept, files) else None

    def of(self, files: RunFiles, wait_s: float) -> Made | Pending:
        """The report of a run; an older one at once while the next is being made.

        Args:
            files: Of the run, as they are now.
            wait_s: How long to wait for the first report.

        Returns:
            The report with the version of the files that it shows; :class:`Pending` if the first takes longer than
            ``wait_s``.

        Raises:
            ReportError: There can be none, and why.
        """
        key = str(files.folder)
        with self._lock:
            kept = self._kept.get(key)
            serves = kept is not None and self._serves(kept, files)
            done = self._under_way.get(key)
            if not serves and done is None:
                done = self._under_way[key] = threading.Event()
                threading.Thread(target=self._make, args=(files, done), name="gpuprof-tab report", daemon=True).start()
            if not serves and kept is not None and kept.report is not None:
                self._kept.move_to_end(key)
                return Made(report=kept.report, version=kept.version)
        if not serves and done is not None and not done.wait(wait_s):
            return Pending(why=f"Reading {files.size_bytes / 1e6:,.1f} MB and making the report …")
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return Pending(why="Making the report once more …")
            self._kept.move_to_end(key)
        if kept.report is None:
            raise ReportError(kept.problem)
        return Made(report=kept.report, version=kept.version)

    def _serves(self, kept: _Kept, files: RunFiles) -> bool:
        return kept.version == files.version or self._now() < kept.due_s

    def _make(self, files: RunFiles, done: threading.Event) -> None:
        key, report, problem, size_bytes = str(files.folder), None, "", 0
        begin = self._now()
        try:
            with self._one_at_a_time:
                begin = self._now()
                report = self._read(files)
            size_bytes = BYTES_PER_JSON_BYTE * _json_bytes(report)
            self._on_made(files, report)
        except GpuProfError as error:
            problem = str(error)
        except Exception as error:  # the fence between a run's files and TensorBoard
            problem = f"the report cannot be made ({type(error).__name__}): gpuprof report {files.folder} says more"
        finally:
            end = self._now()
            kept = _Kept(
                version=files.version,
                report=report,
                problem=problem or ("" if report else "the report cannot be made"),
                size_bytes=size_bytes,
                due_s=end + PAUSE_PER_MAKING * (end - begin),
            )
            with self._lock:
                self._kept[key] = kept
                self._kept.move_to_end(key)
                self._drop_oldest()
                self._under_way.pop(key, None)
            done.set()

    def _drop_oldest(self) -> None:
        """All but the last one may go."""
        held_bytes = sum(kept.size_bytes for kept in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > self._most_reports or held_bytes > self._most_kept_bytes):
            _, dropped = self._kept.popitem(last=False)
            held_bytes -= dropped.size_bytes

    def _read(self, files: RunFiles) -> Report:
        from lightning_gpuprof import pipeline
        from lightning_gpuprof.sinks import json_report

        too_large = files.size_bytes > self._most_read_bytes
        saved = files.report
        # An older report is better than none where the journal is too large.
        if saved is not None and saved.size_bytes <= self._most_read_bytes and (files.report_is_current or too_large):
            try:
                return json_report.read(saved.path)
            except ReportError:
                if too_large or not files.journals:
                    raise
        if too_large:
            raise ReportError(
                f"the run's files hold {files.size_bytes / 1e6:,.0f} MB, the tab reads at most "
                f"{self._most_read_bytes / 1e6:,.0f}. Make the report once: gpuprof report {files.folder}"
            )
        return pipeline.make_report(files.folder)


def _json_bytes(report: Report) -> int:
    import msgspec

    return len(msgspec.json.encode(report))
