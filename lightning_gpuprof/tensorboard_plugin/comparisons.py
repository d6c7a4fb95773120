"""Compares two runs once, with the step times of journals that are small."""

import threading
from collections import OrderedDict

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison.uncertainty import StepTimes, step_times
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.tensorboard_plugin.reports import Made
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles

MAX_KEPT = 32
MAX_JOURNAL_BYTES = 8 << 20
"""Some 250,000 steps: a request waits for them. Of a larger journal the intervals of the report are taken."""


class Comparisons:
    """Comparisons by the states of both runs, the least recently used dropped first.

    Args:
        most_journal_bytes: Size of a journal beyond which it is not read for its step times.
    """

    def __init__(self, *, most_journal_bytes: int = MAX_JOURNAL_BYTES) -> None:
        self._most_journal_bytes = most_journal_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Comparison] = OrderedDict()

    def of(self, names: tuple[str, str], first: tuple[Made, RunFiles], second: tuple[Made, RunFiles]) -> Comparison:
        """The comparison of two runs.

        Args:
            names: Of both.
            first: Report and files of the run that the other is held against.
            second: Report and files of the other run.
        """
        key = "|".join(f"{files.folder}|{made.version}|{files.version}" for made, files in (first, second))
        with self._lock:
            kept = self._kept.get(key)
        if kept is None:
            times = self._times(*first), self._times(*second)
            reports = first[0].report, second[0].report
            kept = compare(*reports, before_name=names[0], after_name=names[1], times=times)
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return kept

    def _times(self, made: Made, files: RunFiles) -> StepTimes | None:
        """The steps that the report rests on; None if its journal is not there, too large, or ahead of the report."""
        if not files.journals or made.version != files.version:
            return None
        if files.journals[0].size_bytes > self._most_journal_bytes:
            return None
        try:
            return step_times(read_journal(files.journals[0].path))
        except JournalError:
            return None
