"""What the update of the parameters takes of a step, and what one fused update would take."""

import msgspec

from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.missing import Unmeasured


class FusedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """All parameter tensors updated together, where they are updated one by one."""

    tensors: float
    ms: float
    """Estimate, per step."""
    is_known: bool
    """Whether the estimate is the most that was measured of such an optimizer."""
    saved: Cost
    """What the loop takes longer. Waiting for a CPU is no work of the optimizer: the certain part is without it."""


class OptimizerUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The phase ``optimizer`` without the learning rate scheduler, or without a noticeable wait."""

    ms: float
    """Median, per step."""
    lower_ratio: float
    """Lower bound of its share of the step."""
    running_ratio: float
    """Share of the step time in which the main thread does not wait for a CPU."""
    fused: FusedUpdate | Unmeasured | None
    """None: the update is fused, or torch does not loop over its tensors."""
