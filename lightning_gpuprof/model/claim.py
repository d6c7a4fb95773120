"""What a finding's gain is taken from: a part of one of the resources that the time of a run is made of."""

from typing import Literal

import msgspec

from lightning_gpuprof.model.phases import Part, Phase

Resource = Literal[
    "batches",
    "CPUs",
    "training thread",
    "step",
    "device idle",
    "device busy",
    "clocks",
    "uneven steps",
    "outside steps",
]
"""Whose time it is:

- ``batches``: the training thread waits for the next batch; a fix makes batches come sooner
- ``CPUs``: a thread is ready to run and has no CPU, in the training process or in DataLoader workers
- ``training thread``: what it does beside the model; on a device that is gained only while the device is idle
- ``step``: part of the ordinary step, whether a device works meanwhile or not
- ``device idle``, ``device busy``: a device without work, and its kernels
- ``clocks``: kernels that take longer because the clocks are throttled
- ``uneven steps``: what some steps take longer than the ordinary one
- ``outside steps``: validation, checkpoints, gaps between epochs, the start
"""


class Claim(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Part of a resource. Findings with equal claims explain the same time and gain it once."""

    resource: Resource
    """Whose time it is."""
    name: str
    """Which part of it."""
    phase: Phase | None = None
    """The phase that it is, or is a part of; None: several (``within``), or not known."""
    within: tuple[Phase, ...] = ()
    """The phases that it is spread over, where it is in several and in no other."""
    part: Part | None = None
    """The part of the wall time that it is, or is a part of."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases whose time it takes; empty if that is not known."""
        return self.within if self.phase is None else (self.phase,)

    @property
    def is_in_step(self) -> bool:
        """Whether it is part of the ordinary step."""
        return self.resource not in ("uneven steps", "outside steps")

    @property
    def is_in_idle_time(self) -> bool:
        """Whether it can only be gained, on a device, while the device has no work."""
        return self.resource in ("batches", "CPUs", "training thread", "device idle")

    @property
    def is_paced(self) -> bool:
        """Whether it is part of the step and no batch comes sooner when it is gained."""
        return self.is_in_step and self.resource not in ("batches", "CPUs")

    def __str__(self) -> str:
        return self.name
