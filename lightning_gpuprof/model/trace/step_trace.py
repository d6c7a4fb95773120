"""Where the time of each step of a window went, on the host and on each device, as plain data."""

import msgspec

from lightning_gpuprof.model.phases import Phase

WHOLE_WINDOW = "whole window"
"""Name of the one row of a window without steps."""


class StepDevice(msgspec.Struct, kw_only=True, frozen=True):
    """One device between the begin and the end of a step, microseconds. ``busy_us + idle_us`` is the step.

    Times are unions over streams, so they overlap. Work may have been launched in the step before.
    """

    device: str
    busy_us: float
    """Kernels, copies and memsets."""
    idle_us: float
    kernel_us: float
    compute_us: float
    """Kernels that do not communicate."""
    memcpy_us: float
    communication_us: float
    """Kernels of NCCL or RCCL; they also wait for the other ranks."""
    exposed_communication_us: float


class StepRow(msgspec.Struct, kw_only=True, frozen=True):
    """One step, or the mean of some; microseconds of the main thread, inflated by profiling."""

    name: str
    total_us: float
    phases_us: dict[Phase, float]
    """Disjoint; with ``other_us`` they sum to the total. Phases that nothing in the window names are left out, which is
    not 0."""
    other_us: float
    kernels_launched: float
    waiting_for_ranks_us: float = 0.0
    """Of the backward, while collectives run on the host (gloo, MPI, UCC) and no operator does."""
    devices: tuple[StepDevice, ...] = ()


class StepTrace(msgspec.Struct, kw_only=True, frozen=True):
    """The steps of a window in order of time.

    The phase of the main thread is that of the innermost range that names one; backward also while autograd runs, here
    or on another thread. Elsewhere operators that only upload are h2d, and from the first to the last forward operator
    is forward.
    """

    steps: tuple[StepRow, ...] = ()
    """One row for the whole window if it has no steps."""
    mean: StepRow | None = None
    """None without steps."""
    has_steps: bool = False
