"""What ``gpuprof try`` is asked and what it measured: arms, blocks of steps, results; stored as ``try.json``."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.journal import Value

FILE_NAME = "try.json"
"""Beside the report of the run whose advice was tried."""

BASE = "as it is"
"""Name of the arm in which nothing is changed."""
INPUT = "one batch replayed"
"""Name of the ceiling of all advice on the input: what a perfect loader would give."""
AROUND = "nothing around the model"
"""Name of the ceiling of all advice on callbacks, logging and progress bars."""

Ceiling = Literal["", "input", "around the model"]
Outcome = Literal["faster", "no gain", "slower", "undecided", "failed"]


class Arm(msgspec.Struct, kw_only=True, frozen=True):
    """One way to run the training step."""

    name: str
    """As people read it: ``num_workers=2, persistent_workers=True``."""
    changes: tuple[Change, ...] = ()
    """What is set while it runs; several where advice is combined."""
    ceiling: Ceiling = ""
    """What is removed entirely instead of changed."""
    rules: tuple[str, ...] = ()
    """Whose advice it is."""
    promised_speedup: float | None = None
    """Of the step, at most; None: no bound was given."""
    expected: Expected | None = None
    """What the finding expects; None: it does not say."""


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """What the process that trains is to try."""

    arms: tuple[Arm, ...]
    """Without the base."""
    seconds: float
    """For all blocks, from the first step on."""
    patience_s: float = 180.0
    """Seconds beyond them, for compilation and a last block. Halfway through them a process writes where it stands; at
    their end it is ended."""
    seed: int = 0
    """Of the drawn order."""
    loader: bool = False
    """Whether the best settings of the loader are searched for."""
    alone: Arm | None = None
    """In force from the start of the process to its end: one block is measured, of the arm :data:`BASE`."""
    conditions: dict[str, Value] = {}
    """Settings of the run whose advice it is: if the program has others, nothing is tried."""
    profile_into: str = ""
    """A folder for a report of the program as it is; nothing is tried then."""


class Differs(msgspec.Struct, kw_only=True, frozen=True, tag="differs"):
    """The program does not have the settings of the run whose advice was to be tried."""

    conditions: dict[str, Value]
    """Those that it has."""


class Started(msgspec.Struct, kw_only=True, frozen=True, tag="started"):
    """The first step began."""

    pid: int
    world_size: int
    device: str
    """``cpu``, or the name of the GPU."""
    left_out: tuple[str, ...] = ()
    """Of the user's program, so that nothing of theirs is written: callbacks, validation."""
    loggers: tuple[str, ...] = ()
    """Classes of loggers that do not run, so that nothing is sent: what they cost is not known."""
    samples_per_step: float | None = None
    """Mean over an epoch, all ranks together; None: not known."""
    sources: tuple[str, ...] = ()
    """Files of the program below its working folder."""


class Trying(msgspec.Struct, kw_only=True, frozen=True, tag="trying"):
    """An arm begins."""

    arm: str
    round: int
    elapsed_s: float
    """Since the first block."""


class Block(msgspec.Struct, kw_only=True, frozen=True, tag="block"):
    """Steps in a row with one arm."""

    arm: str
    round: int
    """Arms of one round are compared with each other."""
    steps: int
    """Measured ones; those left out after the change are not among them."""
    seconds: float
    """That they took, from device idle to device idle."""
    process: bool = False
    """Whether a process of its own was started for it."""
    per_sample: bool = False
    """Whether its steps hold another number of samples: the seconds are those for as many as the base's steps hold."""


class Skipped(msgspec.Struct, kw_only=True, frozen=True, tag="skipped"):
    """An arm that could not be tried in this process, or failed in the middle."""

    arm: str
    why: str
    failed: bool = False
    """Whether it began."""


class Added(msgspec.Struct, kw_only=True, frozen=True, tag="added"):
    """An arm that was made while others ran."""

    arm: Arm


class Over(msgspec.Struct, kw_only=True, frozen=True, tag="over"):
    """The last block ended."""

    steps: int
    seconds: float


Event = Differs | Started | Trying | Block | Skipped | Added | Over
"""A line of what the training process writes."""


class Tried(msgspec.Struct, kw_only=True, frozen=True):
    """What an arm brought against the base, paired by rounds."""

    arm: Arm
    outcome: Outcome
    step_ms: float | None = None
    """Mean of its measured steps, scaled by the pairs to the base's mean; None: never measured."""
    speedup: float | None = None
    """Of the step, geometric mean over rounds."""
    speedup_lower: float | None = None
    """Of the 90 % confidence interval."""
    speedup_upper: float | None = None
    rounds: int = 0
    steps: int = 0
    changes_numbers: bool = False
    """Whether the weights come out differently, as with another precision or batch size."""
    per_sample: bool = False
    """Whether step and speed-up are for as many samples as a step of the base holds."""
    why: str = ""
    """It failed, or could not be decided."""


class NotTried(msgspec.Struct, kw_only=True, frozen=True):
    """Advice that no setting carries out, or none that can change while training runs."""

    rule: str
    advice: str
    """The finding's title, or the arm's name."""
    why: str
    promised_speedup: float | None = None


class Trial(msgspec.Struct, kw_only=True):
    """The result of ``gpuprof try``."""

    schema_version: int = 1
    command: tuple[str, ...] = ()
    """Its words; ``***`` for those that may be secret."""
    run: str = ""
    """Folder of the run whose advice it is."""
    device: str = ""
    base_step_ms: float | None = None
    """Mean step as the program is."""
    tried: tuple[Tried, ...] = ()
    """Most valuable first."""
    together: Tried | None = None
    """All that is worth it, at once; None: fewer than two are."""
    not_tried: tuple[NotTried, ...] = ()
    left_out: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    """Files of the program below its working folder, in which a change is looked for."""
    seconds: float = 0.0
    """Wall time of everything, with the program's own start."""
