"""Lets NVIDIA's profilers record the windows: their edges become ``cudaProfilerStart`` and ``cudaProfilerStop``.

That is what ``nsys profile --capture-range=cudaProfilerApi`` and ``ncu --profile-from-start off`` wait for. The trace
is the tool's; without a tool both calls do nothing.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import torch


class ProfilerSwitch(Protocol):
    """Tells the tool that profiles this process when to record."""

    def start(self) -> None:
        """Begin to record."""
        ...

    def stop(self) -> None:
        """End."""
        ...


class CudaProfilerSwitch:
    """The CUDA runtime's own calls, through torch."""

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: CUDA is not in use, or refuses.
        """
        # Asking for the runtime would initialise it.
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise RuntimeError("CUDA is not in use in this process")
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """End.

        Raises:
            RuntimeError: CUDA refuses.
        """
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


class CudaProfilerTracer:
    """A :class:`~lightning_gpuprof.capture.windows.Tracer` that has the tool record and writes no file of its own.

    Args:
        switch: Starts and stops the tool.
    """

    def __init__(self, switch: ProfilerSwitch) -> None:
        self._switch = switch
        self._recording = False

    def prepare(self) -> None:
        """A tool of this kind needs no warm-up."""

    def start(self, batch: int) -> None:
        """Have the tool record from the step of this batch on.

        Raises:
            RuntimeError: CUDA is not in use, or refuses.
        """
        self._switch.start()
        self._recording = True

    def next_step(self, batch: int) -> None:
        """Steps are told apart by their NVTX ranges."""

    def stop(self, keep: bool) -> Future[Path] | None:
        """Have the tool stop; it keeps what it has, and there is no file of ours.

        Raises:
            RuntimeError: CUDA refuses.
        """
        if self._recording:
            self._recording = False
            self._switch.stop()
        return None
