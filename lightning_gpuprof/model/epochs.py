"""What the time between epochs, and the start of workers at each of them, cost a run."""

import msgspec

from lightning_gpuprof.model.report import LedgerRow


class EpochGaps(msgspec.Struct, frozen=True, kw_only=True):
    """Time between epochs without a step, a validation, a checkpoint or the making of loaders."""

    count: int
    whole_s: float
    """All gaps together, at most the run."""
    lower_s: float
    """The median gap times their number, so that no single gap decides; at most ``whole_s``."""
    each_s: float
    """The median gap."""
    epoch_s: float
    """Median time of the steps of an epoch."""
    run_s: float
    """Wall time without setup and teardown."""
    rows: tuple[tuple[LedgerRow, float], ...]
    """Where a tenth of the gaps or more went, largest first, each with its share; without the start of workers."""


class WorkerStarts(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs that the workers are started at every epoch but the first."""

    epoch_s: float
    """Median time of an epoch, with the gap before it."""
    cost_s: float
    """Median time until the first batch is there, without the ordinary wait."""
    lower_s: float
    """Of that, what no worker that stays alive would need: all of ``iter(dataloader)``, and of the whole time what is
    more than n * T, the longest that one of n workers can take for a batch in a steady run."""
    sum_s: float
    """Of all epochs but the first."""
    iterator_s: float
    """Median time of ``iter(dataloader)``."""
    wait_s: float
    """Ordinary wait for a batch."""
