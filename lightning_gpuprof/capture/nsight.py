"""NVIDIA's profilers: which of them runs this process, and how it records our windows.

Neither tool documents a variable that says so. These are what others rely on as well: ``NSYS_PROFILING_SESSION_ID``
(NVTX.jl, DeepGEMM, GROMACS) and ``NV_COMPUTE_PROFILER_PERFWORKS_DIR`` (DeepGEMM, traccc). Variables that CUDA images
and other tools set too (``NV_NSIGHT_COMPUTE_VERSION``, ``CUDA_INJECTION64_PATH``) are not looked at.

The edges of a window become ``cudaProfilerStart`` and ``cudaProfilerStop``, which is what
``nsys profile --capture-range=cudaProfilerApi`` and ``ncu --profile-from-start off`` wait for. The trace is the tool's;
without a tool both calls do nothing.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Literal

import torch

Tool = Literal["Nsight Systems", "Nsight Compute"]

_SIGNS: tuple[tuple[str, Tool], ...] = (
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"),
)


def active_tool(environ: Mapping[str, str]) -> Tool | None:
    """The tool under which this process was started, or None."""
    return next((tool for name, tool in _SIGNS if environ.get(name)), None)


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
    """A :class:`~lightning_gpuprof.capture.windows.Tracer` that has the tool record and writes no file of its own."""

    def __init__(self, switch: CudaProfilerSwitch) -> None:
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
        """Steps are separated by their NVTX ranges."""

    def stop(self, keep: bool) -> Future[Path] | None:
        """Have the tool stop; it keeps what it has, and there is no file of ours. Hence None.

        Raises:
            RuntimeError: CUDA refuses.
        """
        if self._recording:
            self._recording = False
            self._switch.stop()
        return None
