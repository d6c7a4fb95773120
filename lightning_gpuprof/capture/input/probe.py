"""Times the parts of loading a batch, items, collation, waiting and named parts, into a slot.

The moments come from the process that makes batches: a worker, or the main process. Nothing here raises into its
caller. Imports the standard library only, because spawned workers import it.
"""

import functools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from types import TracebackType

from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.slots import SlotWriter, bucket_index
from lightning_gpuprof.capture.input.transforms import TransformList, transform_lists

MAX_COST_RATIO = 0.01
"""Of the time to load a batch: after a measured one so many go unmeasured that its cost stays below this, but no more
than ``MAX_SKIPPED_RATIO`` allows."""
_MOMENT_NS = 400
"""What noting one moment costs at most; its handling is measured."""
_CALL_NS = 2000
"""Likewise for a timed transform or region."""
_BATCH_NS = 5000
MAX_SKIPPED = 10_000
MAX_SKIPPED_RATIO = 0.5
"""Of the batches so far: of the first hundred quick ones ten are measured, which a statement about them needs."""
MAX_REGIONS = 1000
"""Names of regions that are kept in memory."""


class _Region:
    """A region that the user marked with ``annotate`` in the code of the dataset."""

    __slots__ = ("_add", "_begin", "_now", "_open")

    def __init__(self, now: Callable[[], int], add: Callable[[int], None]) -> None:
        self._now = now
        self._add = add
        self._open: list[int] = []

    def __enter__(self) -> None:
        self._open.append(self._now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._add(self._now() - self._open.pop())


@dataclass(eq=False, repr=False)
class Probe:
    """Sums up what one process does."""

    writer: SlotWriter
    """The process's slot."""
    dataset: object
    """Whose transforms are timed."""
    _: KW_ONLY
    on_failure: Callable[[Exception], object] = lambda error: None
    """Called when measuring fails; nothing is measured from then on."""
    now: Callable[[], int] = time.perf_counter_ns
    """The clock in ns."""
    cpu: Callable[[], int] = time.thread_time_ns
    """CPU time in ns of what makes batches: a thread of the main process, or a worker with all its threads."""

    def __post_init__(self) -> None:
        self.off = False
        self._thread = threading.get_ident()
        self._moments: list[int] = []
        self.moment = self._moments.append
        """Takes the moment at which an item is begun."""
        self._lists: list[TransformList] | None = None
        self._regions: dict[str, _Region] = {}
        self._calls = 0
        self._began_ns = 0
        self._began_cpu_ns = 0
        self._started_ns = 0
        self._searched_ns = 0
        self._collate_ns = 0
        self._ended_ns = 0
        self._skip = 0
        self._batches = 0
        self._made_ns = 0
        self._idle_ns = 0
        self._waits = 0
        self.writer.words[slots.PID] = os.getpid()

    @property
    def armed(self) -> bool:
        """Whether the next batch is to be measured."""
        return not self.off and self._skip <= 0

    def begin(self) -> None:
        """The making of a measured batch begins."""
        try:
            if self.off:
                return
            self._moments.clear()
            self._collate_ns = 0
            self._calls = 0
            called_ns = self.now()
            self._time_transforms()
            self._began_cpu_ns = self.cpu()
            self._began_ns = self._started_ns = self.now()
            self._searched_ns = self._began_ns - called_ns
        except Exception as error:
            self.fail(error)

    def start(self) -> None:
        """The making of a batch begins that is timed as a whole only."""
        try:
            self._started_ns = self.now()
        except Exception as error:
            self.fail(error)

    def collate(self) -> None:
        """The items of a batch are there; they are collated now."""
        try:
            self._collate_ns = self.now()
        except Exception as error:
            self.fail(error)

    def end(self, leading: int, grouped: bool) -> None:
        """A batch is there, measured or not, or the making of it failed.

        Args:
            leading: Moments before the first item.
            grouped: All items are made in one call.
        """
        try:
            end_ns = self.now()
            if self._began_ns:
                self._restore_transforms()
                if self._collate_ns:
                    self._sum_up(end_ns, leading, grouped)
                self._began_ns = 0
            elif self._skip > 0:
                self._skip -= 1
                self._count(end_ns)
            self._ended_ns = self.now()
        except Exception as error:
            self.fail(error)

    def no_batch(self) -> None:
        """Something else than a batch is handed over; waiting for work begins here."""
        try:
            if self._began_ns:
                self._restore_transforms()
                self._began_ns = 0
            if self._ended_ns:
                self._ended_ns = self.now()
        except Exception as error:
            self.fail(error)

    def abort(self) -> None:
        """The making of a batch failed, in a process that goes on."""
        try:
            self._restore_transforms()
            self._began_ns = 0
        except Exception as error:
            self.fail(error)

    def forget(self) -> None:
        """Let go of the dataset: it is not measured any more."""
        try:
            self._restore_transforms()
            self._lists = self.dataset = None
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Measure nothing any more; what has to end the run is raised again.

        Raises:
            BaseException: The error, if it has to end the run.
        """
        if self.off:
            if must_propagate(error):
                raise error  # on its way up
            return
        self.off = True
        try:
            self._restore_transforms()
            self.writer.words[slots.FAILED] = 1
        finally:
            self.on_failure(error)

    def region(self, name: str) -> _Region:
        """A context that times a region of the user's."""
        found = self._regions.get(name)
        if found is None:
            place = self.writer.part(slots.REGION, name)
            found = _Region(self.now, lambda ns: self._note(place, ns))
            if len(self._regions) < MAX_REGIONS:  # names may count items
                self._regions[name] = found
        return found

    # ----------------------------------------------------------------------------------------------------------------

    def _note(self, place: int | None, ns: int) -> None:
        """One call of the part at this place, if it has one; parts that other threads run are not timed."""
        try:
            if threading.get_ident() == self._thread and place is not None:
                self._calls += 1
                self.writer.add_to_part(place, ns)
        except Exception as error:
            self.fail(error)

    def _time_transforms(self) -> None:
        lists = self._lists
        if lists is None or not all(one.is_unchanged for one in lists):
            lists = self._lists = transform_lists(self.dataset)
        for one in lists:
            # By the transform itself: the one at a place may be another one a moment later.
            places = {id(transform): self.writer.part(slots.TRANSFORM, name) for transform, name in one.named}
            one.install_timers(self.now, functools.partial(self._note_transform, places))

    def _note_transform(self, places: dict[int, int], transform: object, ns: int) -> None:
        self._note(places.get(id(transform)), ns)

    def _restore_transforms(self) -> None:
        for one in self._lists or ():
            one.restore()

    def _count(self, end_ns: int) -> None:
        """One batch more: of each the time as a whole, as costly ones are measured in detail more often than others."""
        words = self.writer.words
        self._batches += 1
        words[slots.BATCHES] = self._batches
        self._made_ns += end_ns - self._started_ns
        words[slots.MADE_NS] = self._made_ns
        if self._ended_ns:
            self._idle_ns += self._started_ns - self._ended_ns
            self._waits += 1
            words[slots.IDLE_NS] = self._idle_ns
            words[slots.IDLE_COUNT] = self._waits

    def _sum_up(self, end_ns: int, leading: int, grouped: bool) -> None:
        words = self.writer.words
        cpu_ns = self.cpu() - self._began_cpu_ns
        moments = self._moments[-1:] if grouped else self._moments[leading:]
        first_ns = moments[0] if moments else self._began_ns
        words[slots.SEQUENCE] += 1
        self._count(end_ns)
        words[slots.MEASURED] += 1
        words[slots.ITEM_NS] += self._collate_ns - first_ns
        words[slots.COLLATE_NS] += end_ns - self._collate_ns
        words[slots.CPU_NS] += cpu_ns
        words[slots.COLLATE_MAX_NS] = max(words[slots.COLLATE_MAX_NS], end_ns - self._collate_ns)
        words[slots.KIND] = 1 if grouped else 0
        if not grouped:
            words[slots.ITEMS] += len(moments)
            longest = words[slots.ITEM_MAX_NS]
            following = self._collate_ns
            for begin in reversed(moments):
                ns = following - begin
                following = begin
                words[slots.COUNTERS + bucket_index(ns)] += 1
                if ns > longest:
                    longest = ns
            words[slots.ITEM_MAX_NS] = longest
        if not words[slots.FIRST_NS]:
            words[slots.FIRST_NS] = self._began_ns
        words[slots.LAST_NS] = end_ns
        noting_ns = _BATCH_NS + len(self._moments) * _MOMENT_NS + self._calls * _CALL_NS
        cost_ns = self._searched_ns + self.now() - end_ns + noting_ns
        words[slots.OWN_NS] += cost_ns
        words[slots.SEQUENCE] += 1
        cheap = int(cost_ns / (MAX_COST_RATIO * max(1, end_ns - first_ns)))
        self._skip = min(MAX_SKIPPED, int(MAX_SKIPPED_RATIO * self._batches), cheap)
