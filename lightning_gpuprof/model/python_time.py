"""Forward and backward of a training on the CPU: what of them no operator of torch takes."""

import msgspec


class PythonTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time per step of the main thread in Python, or in native code that is not torch's; milliseconds."""

    period_ms: float
    own_ms: float
    """Of forward and backward in untraced steps, without what the thread waited, also for a CPU, and without pauses of
    the garbage collector; with several ranks, where backward waits for others, of forward."""
    operators_ms: float | None
    """Self time of all operators in traced steps, which tracing makes longer; None: no window shows it."""
    python_ms: float
    """The part of these phases that is neither waiting nor an operator's: tracing makes only operators longer. Of
    windows with Python's stacks, which tracing does make longer, the lower bound."""
    lower_ms: float
    """The same as if operators took as long in untraced steps as in traced ones."""
    place: str
    """Where the main thread was most often seen in the longer of the two; empty if it was not looked at."""

    @property
    def python_ratio(self) -> float:
        """Share of :attr:`own_ms` that is certainly not torch's."""
        return self.lower_ms / self.own_ms if self.own_ms > 0 else 0.0
