"""The names of the parts into which time is divided: phases of a step and parts of the wall time."""

from __future__ import annotations

from typing import Literal, get_args

Phase = Literal[
    "data_wait",
    "h2d",
    "forward",
    "backward",
    "optimizer",
    "zero_grad",
    "clip",
    "callbacks",
    "logging",
    "validation",
    "checkpoint",
    "sync",
    "loop",
]
"""A disjoint slice of host time in a step. The phases of a step sum to its period."""

PHASES: tuple[Phase, ...] = get_args(Phase)

COMPUTE_PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "zero_grad", "clip")
"""Phases in which the model itself works; the others are what surrounds it."""

Part = Literal["setup", "sanity", "train", "validation", "checkpoint", "epoch_gap", "teardown", "unexplained"]
"""A disjoint slice of the wall time of ``fit``. The parts sum to it."""

PARTS: tuple[Part, ...] = get_args(Part)

SegmentKind = Literal["setup", "step", "epoch_gap", "teardown", "unmeasured"]
"""A stretch of wall time between two boundaries; segments follow each other without a hole. ``unmeasured``: after a
failure of the measurement itself."""

Region = Literal["train", "sanity", "validation"]
"""The loop in which an action happens; the same action has one slot in each."""

PHASE_TERMS: dict[Phase, str] = {
    "data_wait": "the training thread waits for the next batch (the fetch from the DataLoader)",
    "h2d": "the batch is moved to the device, with the batch-transfer hooks",
    "forward": "training_step: forward pass and loss",
    "backward": "backward pass; in distributed runs also the wait for slower ranks",
    "optimizer": "the optimizer's update, without the closure that it encloses",
    "zero_grad": "gradients are cleared",
    "clip": "gradients are clipped",
    "callbacks": "hooks of callbacks and of the LightningModule around the batch",
    "logging": "self.log in any hook, and after the batch the reduction of metrics and their way to the loggers",
    "validation": "validation inside the training epoch",
    "checkpoint": "checkpoints are written",
    "sync": "ranks synchronise before the batch",
    "loop": "Lightning's own work between the named actions",
}
"""One sentence per phase, as reports explain it."""
