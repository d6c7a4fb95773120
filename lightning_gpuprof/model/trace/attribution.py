"""To what the device's time in a window belongs: operator, module, line of user code, phase."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.phases import Phase

MODULE = "nn.Module: "
"""Before the name of a module: torch writes ``nn.Module: Linear_0`` for the first ``Linear`` that it met, our windows
write ``nn.Module: encoder.layers.0``, as in ``named_modules()``."""
MODULE_FACTS = "gpuprof_modules"
"""Beside a window's events: class and number of parameters of each module, by the same name."""

Level = Literal["operator", "module", "line", "phase"]
"""What device time is attributed to."""

Stacks = Literal["python_calls", "operators"]
"""Stacks of a trace: the calls of Python functions, of which those of modules are named; or, in traces that torch wrote
until 2022, the text of each operator's stack, which names lines but no modules."""

Reason = Literal["launch_unknown", "not_recorded", "forward_unknown", "outside"]
"""Why device time is attributed to nothing; the first that holds counts:

- ``launch_unknown``: the launch is not in the trace, mostly as it was before the window;
- ``not_recorded``: the trace has nothing of this level at all: no operators, no stacks, no modules, nothing that
  names a phase;
- ``forward_unknown``: launched in a backward pass that has no forward operator in the trace: gradients are accumulated
  or reduced there, or the forward ran before the window;
- ``outside``: launched outside of all operators, modules, lines of user code or named ranges.
"""

LineMeaning = Literal["call", "definition", "when the recording began"]
"""Which line of the function the number in a frame's name is: the one that called, as in the stacks that torch wrote
until 2022; the function's ``def`` (or first decorator), as in the Python calls it records since; or, for a function
that was running when the recording began, the one it had come to then, which says nothing of what it did later."""


class SourceLine(msgspec.Struct, kw_only=True, frozen=True):
    """A frame of user code."""

    frame: str
    """``train.py(82): train_step``, as the trace names it: file, line and function."""
    means: LineMeaning


class Unattributed(msgspec.Struct, kw_only=True, frozen=True):
    """Device time that is attributed to nothing."""

    reason: Reason
    device_us: float


class Attributed(msgspec.Struct, kw_only=True, frozen=True):
    """How much of the device time is attributed on one level."""

    level: Level
    device_us: float
    ratio: float | None
    rest: tuple[Unattributed, ...]
    """Largest first; with ``device_us`` they sum to the device time of the window."""


class LineTime(msgspec.Struct, kw_only=True, frozen=True):
    """What belongs to one line of user code.

    Work launched while it was the innermost line of user code, and its backward.
    """

    line: SourceLine
    hits: int
    """Operators that this line called, not counting operators in them; those of backward passes neither."""
    host_us: float
    """Time of the main thread in which this was the innermost line of user code, with libraries that it called."""
    device_us: float
    """Of kernels, copies and memsets; overlapping work counts twice."""
    backward_us: float
    """The part of ``device_us`` that was launched in a backward pass."""
    blocked_us: float
    """Host time in calls that wait for the device, or in launches into a full queue."""
    device_ratio: float | None
    """Of the device time of the window."""
    copied_bytes: int
    """That its copies to, from and between devices moved."""
    kernels: int
    """Kernels, copies and memsets."""


class ModuleTime(msgspec.Struct, kw_only=True, frozen=True):
    """The time of one module of the tree of calls, each with that of the modules in it."""

    path: tuple[str, ...]
    """From the outermost to the module itself: ``("encoder", "layers.0", "linear1")`` as in ``named_modules()``; where
    only stacks name them ``("Net_0", "Linear_1")``, where numbers count a class's modules as the trace met them."""
    calls: int
    host_us: float
    """Time of the host in its calls."""
    own_host_us: float
    """The part of it outside of the modules in it."""
    backward_host_us: float
    """Time of the host in the backward of its operators."""
    host_ratio: float | None
    """``host_us`` and ``backward_host_us``, of the steps."""
    device_us: float
    """The module's with that of the modules in it, forward and backward."""
    own_us: float
    """What no module in it launched."""
    backward_us: float
    """The part of ``device_us`` that was launched in a backward pass."""
    device_ratio: float | None
    kernels: int
    """Kernels, copies and memsets, with those of the modules in it."""
    parameters: int | None = None
    """With those of the modules in it, each once. None: the trace does not say."""
    type: str = ""
    """Its class; empty where the trace does not say."""


class PhaseTime(msgspec.Struct, kw_only=True, frozen=True):
    """The device time that was launched in one phase of the training loop."""

    phase: Phase
    device_us: float
    device_ratio: float | None
    kernels: int


class Attribution(msgspec.Struct, kw_only=True, frozen=True):
    """Device time by what launched it: sums of durations over devices and streams."""

    stacks: Stacks | None
    """What lines and modules come from; None without stacks."""
    device_us: float
    """All kernels, copies and memsets of the window."""
    levels: tuple[Attributed, ...]
    lines: tuple[LineTime, ...]
    """By device time, then by host time, largest first; also lines without device time."""
    modules: tuple[ModuleTime, ...]
    """Outer modules before those in them, siblings by device time, then by host time."""
    phases: tuple[PhaseTime, ...]
    blocked_us: float
    """Sum over all waiting calls and launches into a full queue, without waits for the whole device before the first
    and after the last launch, mostly the profiler's own."""
    full_queue_us: float
    """The part of it in launches into a full queue, which is no problem."""
