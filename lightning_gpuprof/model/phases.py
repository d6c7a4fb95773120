"""The names of the parts into which time is divided: phases of a step and parts of the wall time."""

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
"""A disjoint slice of host time in a step. The phases of a step sum to its step time."""

PHASES: tuple[Phase, ...] = get_args(Phase)

COMPUTE_PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "zero_grad", "clip")
"""Phases in which the model itself works; the others are what surrounds it."""
WORKING_PHASES: tuple[Phase, ...] = (*COMPUTE_PHASES, "h2d")
"""Phases in which the main thread has no reason to wait on a CPU: moving a batch is work there as well."""

Stage = Literal["fit", "validate", "test", "predict"]
"""What of the trainer is measured: one call of ``trainer.fit``, ``validate``, ``test`` or ``predict``."""

STAGES: tuple[Stage, ...] = get_args(Stage)

Part = Literal[
    "setup",
    "sanity",
    "train",
    "validation",
    "validate",
    "test",
    "predict",
    "checkpoint",
    "epoch_gap",
    "teardown",
    "unexplained",
]
"""A disjoint slice of the wall time of a stage. The parts sum to it."""

PARTS: tuple[Part, ...] = get_args(Part)

OutsidePart = Literal["setup", "validation", "epoch_gap"]
"""A part of the wall time outside of steps in which a rank may be late on its own: in hooks of the first and the last,
and in batches of validation runs, from fetch to ``on_validation_batch_end``."""

STEP_PARTS: dict[Stage, Part] = {"fit": "train", "validate": "validate", "test": "test", "predict": "predict"}
"""The part that the steps of a stage belong to."""

_OF_ALL_STAGES: tuple[Part, ...] = ("checkpoint", "epoch_gap", "teardown", "unexplained")


def parts_of(stage: Stage) -> tuple[Part, ...]:
    """The parts that the wall time of a stage is divided into, in the order of time."""
    if stage == "fit":
        return ("setup", "sanity", "train", "validation", *_OF_ALL_STAGES)
    return ("setup", STEP_PARTS[stage], *_OF_ALL_STAGES)


SegmentKind = Literal["setup", "step", "epoch_gap", "teardown", "unmeasured"]
"""A stretch of wall time between two boundaries; segments follow each other without a hole. ``unmeasured``: after a
failure of the measurement itself."""

Region = Literal["main", "sanity", "validation"]
"""The loop in which an action happens; the same action has one slot in each. ``main`` is the loop whose batches are the
steps: training in ``fit``, the evaluation loop in the other stages. The others run inside of it."""

PHASE_TERMS: dict[Phase, str] = {
    "data_wait": "the main thread waits for the next batch (the fetch from the DataLoader)",
    "h2d": "the batch is moved to the device, with the batch-transfer hooks",
    "forward": "training_step: forward pass and loss",
    "backward": "backward pass; in distributed runs also the wait for slower ranks",
    "optimizer": "the optimizer's update, without the closure that it encloses",
    "zero_grad": "gradients are cleared",
    "clip": "gradients are clipped",
    "callbacks": "hooks of callbacks and of the LightningModule around the batch",
    "logging": "self.log in any hook; after the batch, reducing metrics and handing them to the loggers",
    "validation": "validation inside the training epoch",
    "checkpoint": "checkpoints are written",
    "sync": "ranks synchronise before the batch; in the table of ranks also waits for others elsewhere",
    "loop": "Lightning's own work between the named actions",
}
"""One sentence per phase, as reports explain it."""

_WORDS: dict[str, str] = {
    "data_wait": "waiting for data",
    "h2d": "moving the batch",
    "clip": "gradient clipping",
    "sync": "waiting for ranks",
    "epoch_gap": "between epochs",
    "sanity": "sanity check",
}


def words_of(part: str) -> str:
    """What people call a phase or a part of the wall time; files and scalars have its own name."""
    return _WORDS.get(part, part)


WRITES_OF_LOGGERS = ("log_metrics", "save")
"""Methods of a logger that Lightning calls one after the other to write values."""


def logger_of(action: str) -> str:
    """The logger whose write an action is; empty if it is something else."""
    owner, _, method = action.rpartition(".")
    return owner if method in WRITES_OF_LOGGERS and not owner.startswith("[") else ""


FETCH_RANGE = "enumerate(DataLoader)#gpuprof.__next__"
"""What a fetch is called in a trace file. TensorBoard's profiler tab counts a range of this form as DataLoader time,
but only if it is a ``cpu_op``: the one that torch itself emits is a ``user_annotation`` today, which the tab drops."""

FETCH_NAME = "DataLoader.__next__"
"""What people read in its place, wherever names of a trace are shown."""
