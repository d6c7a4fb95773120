"""Counts and times every kernel of every step, by the CUPTI monitor that torch 2.13 has.

Buffers of CUPTI come about once a second, in a thread of torch's; the sampler's thread adds them up by step and kernel.
A kernel counts in the step during which it began on the device; the host may be some steps ahead by then.
"""

from __future__ import annotations

import ctypes
import importlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from lightning_gpuprof.capture.recorder import SourceUnavailableError
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import KERNEL_COLUMNS, MAX_KERNEL_ROWS, KernelBlock, KernelNames
from lightning_gpuprof.model.packing import Ints, pack

KNOWN_TORCH = ("2.13.",)
"""Versions whose private module was read."""
MAX_KERNELS = 4096
"""Different names; what comes later counts as ``others``."""
MAX_WAITING = 1 << 20
"""Kernels of no closed step that are kept, such as those of a validation; the oldest beyond it count as lost."""
_OTHERS = "others"


class KernelRecords(NamedTuple):
    """Kernels that have run; columns of equal length."""

    names: Sequence[str]
    name: Ints
    """Index into ``names``."""
    start_ns: Ints
    """On the run's clock, ``time.perf_counter_ns``."""
    duration_ns: Ints


class KernelSampler:
    """Adds up the kernels of each step."""

    name = "kernels"
    interval_s = 1.0

    def __init__(self, source: CuptiSource) -> None:
        self._source = source
        self._recording = False
        self._taken: deque[KernelRecords] = deque()
        self._closed: deque[tuple[int, int, int]] = deque()
        self._numbers: dict[str, int] = {}
        self._new_names: dict[int, str] = {}
        self._lost = 0
        self._steps = np.zeros((0, 3), np.int64)
        """Batch, start and end of the steps whose kernels may still come."""
        self._rest = np.zeros((0, 3), np.int64)
        """Kernel, start and duration of those in no closed step yet."""

    def steps_closed(self, steps: Sequence[ClosedStep]) -> None:
        """These steps are over; called in the journal's thread."""
        if self._recording:
            self._closed.extend((step.batch, step.start_ns, step.end_ns) for step in steps)

    def open(self) -> None:
        """Begin to record.

        Raises:
            SourceUnavailableError: It cannot be recorded here.
        """
        self._source.open(self._taken.append)
        self._recording = True

    def sample(self, t_ns: int) -> Sequence[KernelBlock | KernelNames]:
        """What was complete since the last call."""
        return self._records()

    def close(self) -> Sequence[KernelBlock | KernelNames]:
        """The rest."""
        self._recording = False
        self._lost += self._source.close()
        return self._records()

    def _records(self) -> Sequence[KernelBlock | KernelNames]:
        parts = [self._rest]
        while self._taken:
            parts.append(self._numbered(self._taken.popleft()))
        records = np.concatenate(parts)
        closed = [self._closed.popleft() for _ in range(len(self._closed))]
        steps = self._steps = np.concatenate([self._steps, np.array(closed, np.int64).reshape(-1, 3)])
        step = np.searchsorted(steps[:, 1], records[:, 1], "right") - 1
        waits = records[:, 1] >= (steps[-1, 2] if len(steps) else 0)
        inside = (step >= 0) & ~waits
        inside[inside] = records[inside, 1] < steps[step[inside], 2]
        self._lost += max(0, int(waits.sum()) - MAX_WAITING)
        self._rest = records[waits][-MAX_WAITING:]
        if len(records) and len(steps):  # kernels come in the order of their ends: those of steps long before are there
            oldest = int(np.searchsorted(steps[:, 2], records[:, 1].min(), "right"))
            self._steps = steps[min(oldest, len(steps) - 1) :]
        names, self._new_names = self._new_names, {}
        found: list[KernelBlock | KernelNames] = [KernelNames(names=names)] if names else []
        return [*found, *self._blocks(steps[step[inside], 0], records[inside])]

    def _blocks(self, batch: Ints, records: Ints) -> Sequence[KernelBlock]:
        lost, self._lost = self._lost, 0
        if not len(batch):
            return [_packed(0, np.zeros((KERNEL_COLUMNS, 0), np.int64), lost)] if lost else []
        first = int(batch.min())
        key, row = np.unique((batch - first) * (MAX_KERNELS + 1) + records[:, 0], return_inverse=True)
        total_ns = np.zeros(len(key), np.int64)
        np.add.at(total_ns, row, records[:, 2])
        since, kernel = np.divmod(key, MAX_KERNELS + 1)
        table = np.stack((first + since, kernel, np.bincount(row, minlength=len(key)), total_ns))
        return [
            _packed(int(part[0, 0]), np.stack((np.diff(part[0], prepend=part[0, 0]), *part[1:])), lost_here)
            for part, lost_here in (
                (table[:, begin : begin + MAX_KERNEL_ROWS], 0 if begin else lost)
                for begin in range(0, len(key), MAX_KERNEL_ROWS)
            )
        ]

    def _numbered(self, records: KernelRecords) -> Ints:
        numbers = np.array([self._number(name) for name in records.names], np.int64)
        return np.stack((numbers[records.name], records.start_ns, records.duration_ns), axis=1)

    def _number(self, name: str) -> int:
        if name not in self._numbers and len(self._numbers) >= MAX_KERNELS:
            name = _OTHERS
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
            self._new_names[number] = name
        return number


def _packed(first_batch: int, table: Ints, lost: int) -> KernelBlock:
    widths, data = pack(table)
    block = KernelBlock(first_batch=first_batch, count=table.shape[1], widths=widths, crc32=0, data=data, lost=lost)
    block.crc32 = block.checksum()
    return block


class CuptiSource:
    """torch's own monitor, of which only records of kernels are asked for, and none is written to a file."""

    def __init__(self) -> None:
        self._monitor: Any = None

    def open(self, take: Callable[[KernelRecords], object]) -> None:
        """Begin to record; ``take`` may be called from any thread.

        Raises:
            SourceUnavailableError: There is no GPU, this version of torch is not known, cupti-python is missing, or
                another profiler has CUPTI.
        """
        if not torch.cuda.is_available():
            raise SourceUnavailableError("every_kernel has no effect: torch finds no GPU")
        if not torch.__version__.startswith(KNOWN_TORCH):
            known = ", ".join(f"{one}x" for one in KNOWN_TORCH)
            raise SourceUnavailableError(f"every_kernel needs torch {known}, not {torch.__version__}")
        try:
            module: Any = importlib.import_module("torch.profiler._cupti_monitor")
            monitor = _monitor_class(module)(take)
        except ImportError as error:
            raise SourceUnavailableError(f"every_kernel needs cupti-python: {error}") from error
        except Exception as error:  # whatever its private parts raise
            raise SourceUnavailableError(f"every_kernel has no effect: {type(error).__name__}: {error}") from error
        try:
            monitor.start()
        except Exception as error:
            monitor.end_threads()
            raise SourceUnavailableError(f"every_kernel has no effect: {type(error).__name__}: {error}") from error
        self._monitor = monitor

    def close(self) -> int:
        """End, hand over the last buffers, and say how many records were lost."""
        if self._monitor is None:
            return 0
        monitor, self._monitor = self._monitor, None
        try:
            monitor.stop()
        except Exception:  # what it had handed over counts
            monitor.end_threads()
        return int(monitor.stats()["dropped_records"])


def _monitor_class(module: Any) -> Any:
    """A monitor of ``torch.profiler._cupti_monitor`` that hands its records over in place of writing them."""

    class Monitor(module.CuptiMonitor):  # type: ignore[misc]
        def __init__(self, take: Callable[[KernelRecords], object]) -> None:
            module._require_cupti_python()
            self._take = take
            self._kind = int(module._CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
            self._names: dict[int, str] = {}
            self._began = 0, 0
            super().__init__(".", activities=(self._kind,))

        def end_threads(self) -> None:
            """Those of a monitor that failed half-way."""
            self._flush_stop.set()
            module._PY_PROFILER._cupti_monitor_shutdown_buffers()

        def _open_outputs(self) -> None:
            self._began = self._clocks()

        def _close_outputs(self) -> None:
            pass

        def _write_meta_file(self) -> None:
            pass

        def _clocks(self) -> tuple[int, int]:
            """CUPTI's clock and the run's, at one moment."""
            before_ns = time.perf_counter_ns()
            tick = int(module._PY_PROFILER._get_approximate_time())
            return tick, (before_ns + time.perf_counter_ns()) // 2

        def _write_raw_buffer(self, ctx: int, stream_id: int, buffer_ptr: int, valid_size: int) -> None:
            size = module._KERNEL_DTYPE.itemsize
            count = valid_size // size
            try:
                records = np.frombuffer(ctypes.string_at(buffer_ptr, count * size), module._KERNEL_DTYPE)
                if count * size != valid_size or (records["kind"] != self._kind).any():
                    raise ValueError("another layout than that of the Python package")
                whole = records[(records["start"] > 0) & (records["end"] >= records["start"])]
                self._dropped_records += count - len(whole)
                if len(whole):
                    self._take(self._converted(whole))
            except Exception:  # torch's thread must go on, as it gives the buffers back
                self._dropped_records += count

        def _converted(self, records: Any) -> KernelRecords:
            pointers, name = np.unique(records["name"], return_inverse=True)
            start, end = records["start"].astype(np.int64), records["end"].astype(np.int64)
            (tick, ns), (tick_now, ns_now) = self._began, self._clocks()
            ns_per_tick = (ns_now - ns) / (tick_now - tick)
            return KernelRecords(
                names=[self._name_at(int(pointer)) for pointer in pointers],
                name=name,
                start_ns=ns + np.rint((start - tick) * ns_per_tick).astype(np.int64),
                duration_ns=np.rint((end - start) * ns_per_tick).astype(np.int64),
            )

        def _name_at(self, pointer: int) -> str:
            found = self._names.get(pointer)
            if found is None:
                text = module._decode_c_string(pointer, "")
                found = self._names[pointer] = module._demangle_symbol(text) if text else "unnamed"
            return found

    return Monitor
