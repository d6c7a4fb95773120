"""What something costs a step: its time, how much of it is certain, and how much of it a fix can give back."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from lightning_gpuprof.model.finding import Gain, Severity, at_most_warning, severity, speedup, worthwhile
from lightning_gpuprof.model.numbers import of_each_step


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Time that something takes of each step; what happens outside the steps is spread over all of them.

    As text: ``20.0 ms of each 50.0 ms step (40 %)``.
    """

    ms: float
    """Per step."""
    lower_ms: float
    """The part of it that is certain."""
    step_ms: float
    """T, the step time that it is part of."""
    steps: int
    """Steps that it was measured in."""
    most_ratio: float | None = math.inf
    """Share of the step that it can hold up: a device may work meanwhile. None: not known, so that no gain is
    certain."""

    def __str__(self) -> str:
        return of_each_step(self.ms, self.step_ms)

    @property
    def ratio(self) -> float:
        """Share of the step; kernels that overlap may add up to more than 1."""
        return self.ms / self.step_ms

    @property
    def lower_ratio(self) -> float:
        """Certain share of the step that it holds up, if it does."""
        ratio = self.lower_ms / self.step_ms
        return ratio if self.most_ratio is None else min(ratio, self.most_ratio)

    @property
    def saved_ms(self) -> float:
        """What a step gets shorter at most without it."""
        return self.ms if self.most_ratio is None else min(self.ms, self.most_ratio * self.step_ms)

    @property
    def gain(self) -> Gain:
        """Of a step without it."""
        certain_ms = 0.0 if self.most_ratio is None else self.lower_ratio * self.step_ms
        return Gain(
            saved_ms_per_step=self.saved_ms,
            speedup_max=speedup(self.saved_ms, self.step_ms),
            saved_lower_ms_per_step=min(max(0.0, certain_ms), self.saved_ms),
        )

    @property
    def severity(self) -> Severity:
        """By the share that is certain, and the number of steps."""
        return self.severity_beyond(0.0)

    def severity_beyond(self, fixed_ms: float) -> Severity:
        """By what it holds up beyond a time that it may take; information where it may hold up nothing."""
        return "info" if self.most_ratio is None else severity(self.lower_ratio - fixed_ms / self.step_ms, self.steps)

    @property
    def possible_severity(self) -> Severity:
        """Where none of it is certain: by all of it, but at most a warning."""
        return at_most_warning(severity(self.ratio, self.steps))

    def is_worth(self, least_ratio: float = 0.0, *, fixed_ms: float = 0.0) -> bool:
        """Whether it is worth a finding.

        Args:
            least_ratio: Share of the step that it has to hold up for certain.
            fixed_ms: What it may take, which does not count.
        """
        enough = self.lower_ratio - fixed_ms / self.step_ms >= least_ratio
        return enough and worthwhile(self.saved_ms, self.step_ms)

    @property
    def held(self) -> Cost:
        """The part of it that holds the step up."""
        return replace(self, ms=self.saved_ms)

    @property
    def certain(self) -> Cost:
        """The part of it that is certain."""
        return replace(self, ms=self.lower_ms)

    @property
    def uncertain(self) -> Cost:
        """The same, but none of it is certain."""
        return replace(self, lower_ms=0.0)

    def part(self, ratio: float) -> Cost:
        """A share of it, 0 to 1."""
        most_ratio = None if self.most_ratio is None else ratio * self.most_ratio
        return replace(self, ms=ratio * self.ms, lower_ms=ratio * self.lower_ms, most_ratio=most_ratio)
