"""The phases of a trace: what the training was doing on each thread, at any moment."""

import re
from functools import cached_property

import numpy as np

from lightning_gpuprof.model.phases import PHASES, Phase
from lightning_gpuprof.trace.nesting import Nesting, take_or_absent
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, OperatorSpans, Rows, distinct, joined

LIGHTNING = "[pl][profile]"
"""Before the names of Lightning's actions, as its PyTorchProfiler and this package write them."""

_OF_NAME: tuple[tuple[str, Phase], ...] = (
    (r"^(enumerate\(DataLoader\)|DataLoader\.__next__$)|(_dataloader|val|test|predict)_next$", "data_wait"),
    (r"on_save_checkpoint$|^\[pl\]\[profile\]save_checkpoint", "checkpoint"),
    (r"^Optimizer\.zero_grad|\.optimizer_zero_grad$", "zero_grad"),
    (r"configure_gradient_clipping$", "clip"),
    (r"^\[pl\]\[profile\]\[Callback\]", "callbacks"),
    (r"^\[pl\]\[profile\]self\.log", "logging"),
    (r"batch_to_device$|transfer_batch_to_device$|(before|after)_batch_transfer$", "h2d"),
    (r"\.(validation|test|predict)_step$|^\[pl\]\[profile\](run_)?(evaluation|validation)", "validation"),
    (r"\.backward$|^autograd::engine::evaluate_function|^## ?backward ?##$|^(loss\.)?backward(\(\))?$", "backward"),
    (r"\.training_step$|^## ?forward ?##$|^forward(\(\))?$|^DistributedDataParallel\.forward$", "forward"),
    (r"^Optimizer\.step|\]optimizer_step$|\.(optimizer_step|lr_scheduler_step)$|^## ?optimizer ?##$", "optimizer"),
    (r"^\[pl\]\[profile\]\[Lightning(Data)?Module\]", "callbacks"),
)
"""By torch's own ranges, Lightning's actions, and the names that people give; the first that fits counts.

``optimizer_step`` holds the closure with forward and backward in it: the innermost range with a phase counts.
"""


_COMPILED = tuple((re.compile(pattern), phase) for pattern, phase in _OF_NAME)


def phase_of_name(name: str) -> Phase | None:
    """The phase that the name of a range stands for, None if it stands for none."""
    return next((phase for pattern, phase in _COMPILED if pattern.search(name)), None)


def is_fetch(name: str) -> bool:
    """Whether a range of this name is the fetch of a batch: torch's around ``__next__``, or ours around that."""
    return "DataLoader" in name and "__next__" in name


class HostPhases:
    """Ranges whose names stand for a phase.

    Args:
        trace: What was recorded.
    """

    def __init__(self, trace: Trace) -> None:
        parts = (trace.annotation, trace.cpu_op)
        self.of_name: Rows = np.full(len(trace.names), ABSENT, np.intp)
        """The phase that each name stands for, as index into :data:`PHASES`; :data:`ABSENT` if it stands for none."""
        for number in distinct(np.concatenate([part.name for part in parts])).tolist():
            if (phase := phase_of_name(trace.names[number])) is not None:
                self.of_name[number] = PHASES.index(phase)
        self.ranges = joined(OperatorSpans, [part.where(self.of_name[part.name] > ABSENT) for part in parts])
        """They may lie in one another."""
        self.phase: Rows = self.of_name[self.ranges.name]
        """The phase of each range, as index into :data:`PHASES`."""

    @cached_property
    def nesting(self) -> Nesting:
        """How the ranges lie in one another."""
        return Nesting(self.ranges.start_ns, self.ranges.end_ns, self.ranges.thread)

    def innermost(self, time_ns: Int64, thread: Int32) -> Rows:
        """The innermost range of a thread at each moment, :data:`ABSENT` where there is none.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.

        Returns:
            n rows of ranges.
        """
        return self.nesting.innermost(time_ns, thread)

    def at(self, time_ns: Int64, thread: Int32) -> Rows:
        """The phase of a thread at each moment, as index into :data:`PHASES`; :data:`ABSENT` where none is named.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.

        Returns:
            n phases.
        """
        return take_or_absent(self.phase, self.innermost(time_ns, thread))
