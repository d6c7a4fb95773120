"""Detects which of NVIDIA's profilers runs this process, by its environment.

Neither tool documents a variable for that. These are what others rely on as well: ``NSYS_PROFILING_SESSION_ID``
(NVTX.jl, DeepGEMM, GROMACS) and ``NV_COMPUTE_PROFILER_PERFWORKS_DIR`` (DeepGEMM, traccc). Variables that CUDA images
and other tools set too (``NV_NSIGHT_COMPUTE_VERSION``, ``CUDA_INJECTION64_PATH``) are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Tool = Literal["Nsight Systems", "Nsight Compute"]

_SIGNS: tuple[tuple[str, Tool], ...] = (
    ("NSYS_PROFILING_SESSION_ID", "Nsight Systems"),
    ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"),
)


def active_tool(environ: Mapping[str, str]) -> Tool | None:
    """The tool under which this process was started, or None.

    Args:
        environ: Environment variables of the process.
    """
    return next((tool for name, tool in _SIGNS if environ.get(name)), None)
