"""A tracer for tests that only writes down its calls, and training steps with a window controller around it."""

from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path

from lightning_gpuprof.capture.windows import WindowController
from lightning_gpuprof.model.config import PlannedWindow
from lightning_gpuprof.model.journal import WindowRecord

MS = 1_000_000
MAX_NS = 30_000_000_000
POLL_NS = 500 * MS


class NotingTracer:
    """Notes calls, and fails where that is asked for."""

    file = Path(__file__)
    writes_later = False

    def __init__(self, fail_on_stop: bool = False) -> None:
        self.calls: list[str] = []
        self.fail_on_stop = fail_on_stop
        self.writing: Future[Path] = Future()

    def prepare(self) -> None:
        self.calls.append("prepare")

    def start(self, batch: int) -> None:
        self.calls.append(f"start {batch}")

    def next_step(self, batch: int) -> None:
        self.calls.append(f"step {batch}")

    def stop(self, keep: bool) -> Future[Path] | None:
        self.calls.append("stop" if keep else "discard")
        if not keep:
            return None
        written: Future[Path] = Future()
        if self.fail_on_stop:
            written.set_exception(OSError(28, "No space left on device"))
        elif not self.writes_later:
            written.set_result(self.file)
        self.writing = written
        return written


class Run:
    """Training steps with one optimizer step per ``batches_per_step`` batches, each a period of 1 ms."""

    def __init__(
        self,
        planned: tuple[PlannedWindow, ...] | None,
        *,
        warmup: int = 2,
        max_windows: int = 10,
        every_n_steps: int | None = None,
        max_batches: int = 200,
        tracer: NotingTracer | None = None,
    ) -> None:
        self.tracer = tracer or NotingTracer()
        self.records: list[WindowRecord] = []
        self.profiled = False
        self.traced_batches: list[int] = []
        self.now = 0
        self.looked = 0
        self.noticed_written = 0
        self.controller = WindowController(
            planned,
            active=3,
            every_n_steps=every_n_steps,
            warmup=warmup,
            max_windows=max_windows,
            max_bytes=1_000_000,
            max_batches=max_batches,
            max_ns=MAX_NS,
            tracer=self.tracer,
            on_window=lambda record, path: self.records.append(record),
            on_profiled=self._set_profiled,
            on_written=self._note_written,
            now=lambda: self.now,
        )

    def _set_profiled(self, on: bool) -> None:
        self.profiled = on

    def _note_written(self) -> None:
        self.noticed_written += 1

    def pass_boundaries(self, steps: Iterable[int]) -> None:
        for step in steps:
            self.controller.at_boundary(step, step, step * MS)

    def train(
        self,
        batches: int,
        *,
        first_step: int = 0,
        batches_per_step: int = 1,
        steps_per_batch: int = 1,
        period_ns: int = MS,
        asked_at: dict[int, str] | None = None,
        noticed_at: dict[int, str] | None = None,
        validates_after: tuple[int, ...] = (),
        epoch_batches: int = 0,
    ) -> None:
        wake = self.controller.begin(first_step)
        for batch in range(batches):
            step = first_step + batch * steps_per_batch // batches_per_step
            self.now += period_ns
            if asked_at and batch in asked_at:
                self.controller.request(asked_at[batch], by_person=True)
                wake = 0
            if noticed_at and batch in noticed_at:
                self.controller.request(noticed_at[batch], by_person=False)
                wake = 0
            if self.now // POLL_NS > (self.now - period_ns) // POLL_NS and self.controller.is_due:
                wake = 0  # by the journal's thread
            if step >= wake:
                self.looked += 1
                wake = self.controller.at_boundary(batch, step, self.now)
            if self.profiled:
                self.traced_batches.append(batch)
            if batch in validates_after:
                self.controller.interrupt("validation began")
                assert not self.profiled
            if epoch_batches and (batch + 1) % epoch_batches == 0:
                self.controller.interrupt("the epoch ended")
                assert not self.profiled
        self.controller.end("finished", first_step + batches * steps_per_batch // batches_per_step)


def reasons(run: Run) -> list[tuple[int, str]]:
    """Start and reason of what was recorded."""
    return [(r.start_step, r.reason) for r in run.records if not r.problem]


def spans(run: Run) -> list[tuple[int, int, str]]:
    return [(r.start_step, r.stop_step, r.problem) for r in run.records]
