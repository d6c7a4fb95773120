"""The summary that a rank keeps beside its journal: renewed while it runs, complete at its end."""

import threading
import time
from pathlib import Path

import msgspec

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_summary import MOST_BYTES_WHILE_RUNNING, summarise, summary_path
from lightning_gpuprof.sinks.files import write_whole

MOST_CPU_RATIO = 0.002
"""Of the time, for which summaries may use a CPU: 10 ms in 5 s once the ends of a journal are read. Heuristic."""


class SummaryFile:
    """The summary of one journal, which other ranks and commands read at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_s = 0.0
        self._is_complete = False

    def renew(self, journal: Path) -> None:
        """Sum up the ends of a journal, so that its size does not matter; nothing where that was done lately.

        Called by the thread that has just written to it.

        Raises:
            GpuProfError: The journal cannot be read, or the summary not be written.
        """
        with self._lock:
            if self._is_complete or time.monotonic() < self._due_s:
                return
            begin_s = time.thread_time()
            _write(journal, MOST_BYTES_WHILE_RUNNING)
            self._due_s = time.monotonic() + (time.thread_time() - begin_s) / MOST_CPU_RATIO

    def complete(self, journal: Path) -> Journal:
        """Sum up the whole journal, and return what is in it; the summary is not renewed any more.

        Raises:
            GpuProfError: As of :meth:`renew`.
        """
        with self._lock:
            self._is_complete = True
            return _write(journal, None)


def _write(journal: Path, most_bytes: int | None) -> Journal:
    journal_bytes = journal.stat().st_size  # before it is read: it may grow meanwhile
    read = read_journal(journal, most_bytes)
    summary = msgspec.structs.replace(summarise(read), journal_bytes=journal_bytes)
    write_whole(summary_path(journal), msgspec.json.encode(summary))
    return read
