"""What figures draw over the steps: what was sampled beside them, what happened to them, and the ranks side by side."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.phases import Phase

CurveSource = Literal["nvml", "host", "memory"]
"""Who took the samples of a curve."""

MarkKind = Literal["outlier", "window", "validation", "checkpoint", "epoch", "speed level"]
"""What can be marked beside the step time."""

MARK_TERMS: dict[MarkKind, str] = {
    "outlier": "a steady step far above the others: median + max(5 robust standard deviations, half the median)",
    "window": "steps that were traced, with those that the trace warmed up in",
    "validation": "validation ran in this step or right after it",
    "checkpoint": "a checkpoint was written in this step or right after it",
    "epoch": "the first step of an epoch",
    "speed level": "from here on the step time keeps another level, by more than a fifth",
}
"""One sentence per mark, as reports explain it."""


class Curve(msgspec.Struct, kw_only=True, frozen=True):
    """One sampled value over the run, thinned so that the least and the largest of each stretch stay."""

    source: CurveSource
    subject: str
    """What was sampled: ``gpu0``, ``process``, ``workers``, ``host``."""
    name: str
    """With its unit, as in the journal's samples: ``utilization_ratio``, ``rss_bytes``."""
    t_s: list[float]
    """Seconds since the stage was entered."""
    batch: list[float]
    """Where in the steps that was: 12.5 is the middle of the step with ``total_batch_idx`` 12. It stands still between
    two steps, as in validation."""
    values: list[float]


class Mark(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that happened to a step, or from one to another."""

    from_batch: int
    """``total_batch_idx``."""
    to_batch: int
    ms: float | None = None
    """Outlier: its step time; validation, checkpoint: how long; speed level: its median step time. None: no
    duration."""


class Marks(msgspec.Struct, kw_only=True, frozen=True):
    """All marks of one kind, in order."""

    kind: MarkKind
    count: int
    """How many there were."""
    marks: tuple[Mark, ...]
    """Of many, the longest; of epochs, some at even distance."""


class RankRow(msgspec.Struct, kw_only=True, frozen=True):
    """One rank over the steps that all ranks have steady."""

    rank: int
    host: str
    period_ms: float
    """Median."""
    phases_ms: dict[Phase, float]
    """Median of each phase that took any time on any rank."""
    excess_ms: float
    """Median of its own time minus that of the others; its own is what needs no other rank."""
    samples_per_s: float | None = None
    peak_memory_bytes: float | None = None
    """That it needs of its GPU, or its process on a CPU."""


class Ranks(msgspec.Struct, kw_only=True, frozen=True):
    """All ranks of a job of which there are journals."""

    world_size: int
    steps: int
    """Steps that were compared."""
    own_phases: tuple[Phase, ...]
    """What counts as a rank's own time."""
    rows: tuple[RankRow, ...]
    left_out: tuple[str, ...] = ()
    """Which ranks are not among the rows, and why."""
