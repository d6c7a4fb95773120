"""A run by the levels of the method: what is known on each, whether to open the next one, and the checklist."""

from typing import Literal

import msgspec

LevelName = Literal[
    "conditions",
    "baseline",
    "bottleneck",
    "component",
    "operation",
    "actions",
    "verification",
]
"""In order: each is only worth reading if the ones above hold."""

LEVEL_QUESTIONS: dict[LevelName, str] = {
    "conditions": "Under what conditions, and is the measurement valid?",
    "baseline": "How fast is it?",
    "bottleneck": "What kind of thing bounds it?",
    "component": "Which part?",
    "operation": "Which operation, and why?",
    "actions": "What to do first?",
    "verification": "How to see that it helped?",
}
"""What each level answers, as reports head it."""

CheckState = Literal["yes", "no", "not applicable"]


class Level(msgspec.Struct, kw_only=True, frozen=True):
    """One level of the method."""

    name: LevelName
    answer: str
    """One sentence."""
    holds: bool
    """Whether the levels below can rest on it."""
    unfolded: bool = True
    """Whether the levels above justify a look at it."""
    why: str = ""
    """Why it does not hold, or is folded; empty otherwise."""
    lines: tuple[str, ...] = ()
    """Details; empty if it is folded."""


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """One box of the method's checklist."""

    group: LevelName
    """The level that it belongs to."""
    text: str
    """What the box asks for."""
    state: CheckState
    evidence: str
    """What ticks the box, or what is missing for it."""


class Method(msgspec.Struct, kw_only=True, frozen=True):
    """All levels in order, and the checklist."""

    levels: tuple[Level, ...]
    """From the conditions to the verification."""
    checklist: tuple[Check, ...]
    """The method's boxes."""


class Outlook(msgspec.Struct, kw_only=True, frozen=True):
    """Whether a target can be reached by what was found. Gains are upper bounds: so is what can be reached."""

    target: str
    """As it was asked for: ``1.3x``, ``500 samples/s``."""
    reached: bool
    """This run is there already."""
    reachable: bool | None
    """By the gains of all findings together; None: not comparable with what was measured."""
    certain: bool = False
    """By the lower bounds of the gains, too."""
    needed_ms_per_step: float | None = None
    """What must be saved."""
    available_ms_per_step: float | None = None
    """What all findings together can save at most."""
    rules: tuple[str, ...] = ()
    """The fewest findings, most valuable first, that reach it together; all with a gain if they do not."""
    summary: str
    """All of it in a sentence."""


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """What training costs; None is "not measured" or "not given"."""

    gpu_hours: float | None = None
    """Of all ranks, over the wall time of the stage."""
    gpu_hours_per_epoch: float | None = None
    """Of all ranks, with everything beside the steps but setup and teardown."""
    gpu_hours_per_million_samples: float | None = None
    """With everything beside the steps but setup and teardown."""
    price_per_million_samples: float | None = None
    """In the unit of the given price."""
    joules_per_sample: float | None = None
    """Of the boards of the GPUs that were measured, over the samples of their rank."""
