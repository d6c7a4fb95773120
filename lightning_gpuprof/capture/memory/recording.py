"""All that is recorded of memory in one stage, put together: edges, what is held, histories, an out-of-memory."""

import contextlib
import pickle
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from lightning_gpuprof.capture.call_sites import UserCode
from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.measured_stage import MeasuredStage
from lightning_gpuprof.capture.memory import held
from lightning_gpuprof.capture.memory.backend import Allocator, is_out_of_memory, sample_values
from lightning_gpuprof.capture.memory.edges import MemoryEdges, PhaseMark, ending_actions
from lightning_gpuprof.capture.memory.out_of_memory import first_line, out_of_memory_in, phase_and_place, sizes_in
from lightning_gpuprof.capture.memory.replay import Frames, free_pieces, held_pieces, replay
from lightning_gpuprof.capture.memory.sampler import MemorySampler
from lightning_gpuprof.model.journal import MemoryHistoryRecord, OutOfMemoryRecord
from lightning_gpuprof.model.memory import MemoryHistory, OutOfMemory

PART = "memory"
SNAPSHOT_PART = "memory snapshot"
WINDOW = "window"
_COUNTED = ("allocated_bytes", "reserved_bytes", "allocated_peak_bytes", "inactive_split_bytes", "retries_count")
READY_STEPS = 2
"""Optimizer steps after which all states are there."""

_NO_HISTORY = (
    "the allocator's history was not recorded. Record it: TraceConfig(memory_snapshot=True) with a window over the "
    "step, or torch.cuda.memory._record_memory_history() before fit"
)


class MemoryRecording:
    """Memory of one stage. What the main thread calls raises nothing into it that no fence is around.

    Args:
        measured: The stage, at the start of its steps.
        module: The model.
        backend: The allocator of its device, or None where there is none that can be read.
    """

    def __init__(self, measured: MeasuredStage, module: Any, backend: Allocator | None) -> None:
        trainer = self._trainer = measured.trainer
        clock = self._clock = measured.clock
        fence = self._fence = measured.fence
        fits = self._fits = measured.is_fit
        trace = measured.options.trace
        self._module = module
        self._backend = backend
        self._post = measured.journal.post
        self._folder = measured.journal.folder
        self._histories = trace is not None and trace.memory_snapshot
        """Whether the allocator's history is recorded in trace windows."""
        self._recording = False
        self._started_at = 0
        self._job: threading.Thread | None = None
        self._user_code: UserCode | None = None
        self._shown: dict[str, str] = {}
        self._edges: MemoryEdges | None = None
        if backend is not None:
            self._edges = MemoryEdges(
                backend,
                endings=ending_actions(
                    type(trainer.strategy).__name__,
                    type(module).__name__,
                    manual=not module.automatic_optimization,
                )
                if fits
                else {},
                wrap_action=partial(measured.tap.wrap_action, "main"),
                on_failure=self._edges_failed,
            )
        elif self._histories and trainer.strategy.root_device.type == "cuda":
            fence.report(SNAPSHOT_PART, "torch's own caching allocator is not in use: there is no history to record")
        first = clock.counters()[1]
        self.sampler = MemorySampler(
            self._edges,
            device=backend.name if backend is not None else "",
            total_bytes=backend.total_bytes if backend is not None else None,
            module=module,
            optimizers=lambda: list(trainer.optimizers),
            is_ready=lambda: not fits or clock.counters()[1] >= first + READY_STEPS,
            wake=clock.wake,
        )

    # Of the main thread -----------------------------------------------------------------------------------------

    def end_step(self) -> None:
        """A step is over; before anybody else puts actions' contexts back."""
        if self._edges is not None:
            self._edges.end_step()

    def begin_step(self, batch: int, *, tracing: bool) -> bool:
        """A step begins.

        Args:
            batch: Number of the step.
            tracing: A trace window is open, which is when a history is recorded and nothing is sampled.

        Returns:
            Whether the next boundary is to be reported, as it always is while a history is recorded.
        """
        with self._fence.around(PART):
            self.sampler.between_steps()
        edges = self._edges
        if edges is None:
            return False
        if tracing is not self._recording and (tracing or self._recording):
            self._window_changed(tracing)
        if self._recording:
            edges.mark_step()
            return True
        if not tracing:
            edges.begin_step(batch)
        return edges.is_waiting

    def steps_end(self) -> None:
        """Training is over."""
        with self._fence.around(PART):
            self.end_step()
            self.sampler.end()
            if self._recording:
                self._window_changed(tracing=False)

    def out_of_memory(self, error: BaseException) -> None:
        """Training ends with an exception: if no memory was left, note what held it. It is only looked at."""
        if (found := out_of_memory_in(error)) is None:
            return
        message = str(found)
        sizes: dict[str, Any] = sizes_in(message)
        phase, place = phase_and_place(found.__traceback__, self._site_of)
        batch, global_step = self._step()
        counted = held.HeldCounts()
        try:
            counted = held.count(self._module, list(self._trainer.optimizers))
        except RuntimeError as failure:
            self._fence.report(PART, f"what the model holds could not be counted: {failure}")
        rows = counted.rows()
        history: MemoryHistory | None = None
        absent = ""
        backend = self._backend if is_out_of_memory(found) else None
        if backend is not None:
            values = sample_values(backend.read())
            sizes |= {name: int(value) for name in _COUNTED if (value := values.get(name)) is not None}
            sizes.setdefault("total_bytes", backend.total_bytes)
            on_device = sum(row.total_bytes for row in rows if row.device == backend.device)
            if (allocated := sizes.get("allocated_bytes")) is not None:
                sizes["other_bytes"] = max(0, allocated - on_device)
            history, absent = self._history_at_end(backend, sizes)
        self._post(
            OutOfMemoryRecord(
                facts=OutOfMemory(
                    message=first_line(message) or type(found).__name__,
                    batch=batch,
                    global_step=global_step,
                    phase=phase,
                    place=place,
                    held=rows,
                    history=history,
                    history_absent=absent,
                    **sizes,
                )
            )
        )

    def close(self) -> None:
        """Nothing of ours stays; a second call does nothing."""
        self.end_step()
        if self._recording and self._backend is not None:
            self._recording = False
            self._backend.stop_history()

    def wait(self, timeout_s: float) -> None:
        """Wait for what is being made of a history, at most so long."""
        if self._job is not None:
            self._job.join(timeout_s)
            if self._job.is_alive():
                self._fence.report(SNAPSHOT_PART, f"not written {timeout_s:.0f} s after the end of training: left out")

    # ----------------------------------------------------------------------------------------------------------------

    def _step(self) -> tuple[int, int]:
        """Batch and optimizer steps: the clock has given up the step that raised."""
        batch, global_step = self._clock.counters()[:2]
        if self._fits:
            batch, global_step = self._trainer.fit_loop.epoch_loop.total_batch_idx, self._trainer.global_step
        return batch, global_step

    def _edges_failed(self, error: Exception) -> None:
        if must_propagate(error):
            raise error
        self._fence.report(PART, f"switched off after {type(error).__name__}: {error}")

    def _window_changed(self, tracing: bool) -> None:
        """A trace window opened or closed."""
        backend, edges = self._backend, self._edges
        if backend is None or edges is None or not self._histories:
            return
        with self._fence.around(SNAPSHOT_PART):
            if tracing:
                if self._job is not None and self._job.is_alive():
                    return
                if backend.records_history():
                    self._histories = False
                    message = "other code records the allocator's history: no snapshot is taken"
                    self._fence.report(SNAPSHOT_PART, message)
                    return
                backend.start_history()
                self._recording = True
                self._started_at = self._clock.counters()[1]
                edges.take_marks()
                return
            self._recording = False
            steps = (self._started_at, self._clock.counters()[1])
            marks = edges.take_marks()
            job = threading.Thread(
                target=self._make_history, args=(backend, steps, marks), name="gpuprof-memory-snapshot", daemon=True
            )
            self._job = job
            job.start()

    def _make_history(self, backend: Allocator, steps: tuple[int, int], marks: Sequence[PhaseMark]) -> None:
        """In a thread: the interpreter is held by the snapshot in any case, but not by all that follows."""
        with self._fence.around(SNAPSHOT_PART):
            try:
                snapshot = backend.snapshot()
            finally:
                backend.stop_history()
            file = self._write(snapshot)
            facts = self._facts(backend, snapshot, WINDOW, steps, marks, file)
            self._post(MemoryHistoryRecord(facts=facts))

    def _history_at_end(self, backend: Allocator, sizes: dict[str, Any]) -> tuple[MemoryHistory | None, str]:
        """What a snapshot says now, into ``sizes`` and as a table; or why there is no table."""
        try:
            snapshot = backend.snapshot()
            total, largest, pieces = free_pieces(snapshot, backend.index)
            sizes |= {"free_in_reserved_bytes": total, "largest_free_bytes": largest, "free_pieces_count": pieces}
            file = self._write(snapshot)
            sizes |= {"pieces": held_pieces(snapshot, backend.index), "snapshot_file": file}
            traces = snapshot.get("device_traces") or ()
            if not (backend.index < len(traces) and traces[backend.index]):
                return None, _NO_HISTORY
            now = self._clock.counters()[1]
            marks = self._edges.take_marks() if self._edges is not None else ()
            start = self._started_at if self._recording else now
            return self._facts(backend, snapshot, "out of memory", (start, now), marks, file), ""
        except Exception as error:
            if must_propagate(error):
                raise
            absent = f"the snapshot failed: {type(error).__name__}: {error}"
            self._fence.report(SNAPSHOT_PART, absent)
            return None, absent

    def _facts(
        self,
        backend: Allocator,
        snapshot: Mapping[str, Any],
        reason: str,
        steps: tuple[int, int],
        marks: Sequence[PhaseMark],
        file: str,
    ) -> MemoryHistory:
        found = replay(snapshot, backend.index, self._place_of, marks)
        return MemoryHistory(
            reason=reason,
            start_step=steps[0],
            stop_step=steps[1],
            device=backend.index,
            events=found.events,
            peak_bytes=found.peak_bytes,
            at_peak=found.at_peak,
            at_failure=found.at_end if reason != WINDOW else (),
            before_bytes=found.before_bytes,
            peaks_by_phase=found.peaks_by_phase,
            file=file,
            problem="" if found.events else "nothing was allocated or freed during the window",
        )

    def _write(self, snapshot: Mapping[str, Any]) -> str:
        """The pickle for pytorch.org/memory_viz; returns its name, or nothing if it cannot be written."""
        name = f"rank{self._trainer.global_rank}.{time.time_ns()}.memory_snapshot.pickle"
        unfinished = self._folder / f"{name}.tmp"
        try:
            with unfinished.open("wb") as file:
                pickle.dump(snapshot, file, protocol=4)
            unfinished.rename(self._folder / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            self._fence.report(SNAPSHOT_PART, f"{name} cannot be written ({error.strerror or error})")
            return ""
        return name

    def _code(self) -> UserCode:
        if self._user_code is None:
            self._user_code = UserCode.of_this_process()
        return self._user_code

    def _site_of(self, frame: FrameType, line: int) -> str | None:
        return self._code().place(frame.f_code.co_filename, line, frame.f_code.co_name)

    def _place_of(self, frames: Frames) -> str:
        """The innermost line of the user's code; of a library's if there is none; empty without Python."""
        code = self._code()
        library = ""
        for frame in frames:
            file, line, name = str(frame.get("filename", "")), int(frame.get("line", 0)), str(frame.get("name", ""))
            if not file.endswith(".py") and not file.startswith("<"):
                continue  # C++
            if place := code.place(file, line, name):
                return place
            library = library or f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        return library
