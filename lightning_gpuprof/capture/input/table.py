"""Shared memory with one slot per worker."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.slots import SLOT_BYTES, Reading, read_slot

SHARED_MEMORY = Path("/dev/shm")
"""A file here is memory: no disk is written, and none can be full."""


class Table:
    """Memory with a slot for each process. Made for workers it is a small file, until all of them have opened it."""

    def __init__(self, memory: memoryview, count: int, path: str = "", mapped: mmap.mmap | None = None) -> None:
        self.memory = memory
        self.path = path
        self._mapped = mapped
        self._slots = [memory[SLOT_BYTES * n : SLOT_BYTES * (n + 1)] for n in range(count)]

    @classmethod
    def of_this_process(cls) -> Table:
        """One slot for the main process itself."""
        return cls(memoryview(bytearray(SLOT_BYTES)), 1)

    @classmethod
    def for_workers(cls, count: int, folders: Sequence[Path] = (SHARED_MEMORY,)) -> Table:
        """A slot for each worker, in a file that only this user can open.

        Args:
            count: Workers.
            folders: Where the file may be; the first that can be written. Else the folder for temporary files.

        Raises:
            OSError: No file can be made.
        """
        folder = next((str(f) for f in folders if os.access(f, os.W_OK | os.X_OK)), None)
        descriptor, path = tempfile.mkstemp(prefix="gpuprof-input-", dir=folder)
        try:
            # Written, not only made longer: a page that cannot be had later would kill the worker that touches it.
            _write_zeros(descriptor, SLOT_BYTES * count)
            mapped = mmap.mmap(descriptor, SLOT_BYTES * count)
        except BaseException:
            Path(path).unlink()
            raise
        finally:
            os.close(descriptor)
        return cls(memoryview(mapped), count, path, mapped)

    def read(self) -> list[Reading | None]:
        """Per process what it has written; None for one that was writing at each look."""
        return [read_slot(slot) for slot in self._slots]

    def remove_file(self, *, at_once: bool = True) -> None:
        """Take the file's name away; those who have opened it keep the memory.

        Args:
            at_once: Also if workers have not opened it yet; they are not measured then.
        """
        if not self.path or not (at_once or all(slot.cast("q")[slots.PID] for slot in self._slots)):
            return
        path, self.path = self.path, ""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - a name, and at the interpreter's end

    def close(self) -> None:
        """Let go of the memory."""
        self.remove_file()
        for slot in self._slots:
            slot.release()
        self._slots = []
        self.memory.release()
        if self._mapped is not None:
            self._mapped.close()


def _write_zeros(descriptor: int, count: int) -> None:
    left = count
    while left:
        left -= os.write(descriptor, bytes(left))
