"""The input pipeline of a run as it was seen from inside; a value that was not measured is None."""

import math
from typing import Literal

import msgspec

InputVerdictKind = Literal["processing", "transfer", "compute", "not-enough-data"]
"""What limits the pace at which batches reach the model."""

INPUT_VERDICT_TERMS: dict[InputVerdictKind, str] = {
    "processing": "batches take longer to load than steps take to use them",
    "transfer": "batches reach the model late although workers have time left",
    "compute": "batches wait for the model: the step itself is the limit",
    "not-enough-data": "too little was measured",
}

PartKind = Literal["transform", "region"]


class InputWorker(msgspec.Struct, kw_only=True, frozen=True):
    """One process that makes batches. Times are wall times in that process."""

    loader: int
    process: str
    """``worker0``, or ``process``: the main process itself."""
    batches: int
    measured: int
    """Batches whose items were measured; of short ones only some."""
    items: int | None
    """Items in the measured batches; None if ``__getitems__`` makes them together."""
    item_mean_ms: float | None
    item_p95_ms: float | None
    """At most a quarter above the true one."""
    item_max_ms: float | None
    items_ms: float | None
    """Mean time that the items of one batch take. None, like the next and ``cpu_ms``, where a few unmeasured batches
    take most of the time."""
    collate_mean_ms: float | None
    """Mean time to put the items of a batch together, of all batches."""
    collate_max_ms: float | None
    idle_ms: float | None
    """Mean wait between handing over a batch and beginning the next, with the handing over itself."""
    idle_ratio: float | None
    """That wait as a share of the time between two batches."""
    cpu_ms: float | None = None
    """Mean CPU time that a batch takes, as measured in the thread or worker that makes it."""
    make_ms: float | None = None
    """Mean time that a batch takes, items and collation, of all batches."""


class InputPart(msgspec.Struct, kw_only=True, frozen=True):
    """A named part of making items, over all processes."""

    loader: int
    kind: PartKind
    """A transform of a list of such, or a region marked with ``annotate``."""
    name: str
    calls: int | None
    """None, as the two below, for a region in the main process: its time is known by step."""
    mean_ms: float | None
    max_ms: float | None
    share: float | None
    """Of the time that items took, 0 to 1."""


class InputQueue(msgspec.Struct, kw_only=True, frozen=True):
    """Finished batches that wait for the training, looked at from time to time."""

    loader: int
    looks: int
    workers: int
    capacity: int | None
    """Batches that may be under way or finished at one time: workers times ``prefetch_factor``."""
    depth_mean: float | None
    depth_max: float | None
    empty_ratio: float | None
    """Share of looks at which no batch was ready."""
    unpinned_mean: float | None
    """Mean number of those that the thread that pins memory had not taken yet; None without such a thread."""


class Padding(msgspec.Struct, kw_only=True, frozen=True):
    """How much of the rows of tokens in a loader's batches is padding, from a look at a few of them."""

    name: str
    """Of the tensor: ``input_ids``; empty: the batches have no such rows."""
    looks: int
    width: int = 0
    """Length of the longest row, with its padding."""
    fixed: bool = False
    """Whether all batches have that length."""
    mean_width: float | None = None
    """Mean length of a row with its padding."""
    real_ratio: float = 1.0
    """Share of all rows that is not padding."""
    to_longest_ratio: float = 1.0
    """Share that would be left if each batch ended with its longest row."""


class InputLoader(msgspec.Struct, kw_only=True, frozen=True):
    """One loader as a producer of batches."""

    loader: int
    workers: int
    """0: the main process makes its batches."""
    make_ms: float | None
    """Mean time that one process needs for a batch: items and collation."""
    items_ms: float | None
    """Of that, making the items. None, like the next, also where a few unmeasured batches take most of the time."""
    collate_ms: float | None
    """Of that, putting them together."""
    deliver_ms: float | None
    """At this interval all its processes together make a batch if none of them waits."""
    idle_ratio: float | None
    """Share of their time that they wait for work."""
    cpu_ms: float | None = None
    order_ms: float | None = None
    """Median time in which its sampler and batch sampler give the indices of a batch, in the main process."""
    order_of: str = ""
    """Which sampler that is: ``ByLength (data.py:31)``."""
    padding: Padding | None = None
    """None: no batch was inspected."""


class InputPipeline(msgspec.Struct, kw_only=True, frozen=True):
    """How the steps are fed."""

    verdict: InputVerdictKind
    """What limits the pace at which batches reach the model."""
    summary: str
    """The verdict in a sentence, with the numbers that say so."""
    step_ms: float | None
    """Median step without its wait for data."""
    wait_ms: float | None
    waited_ratio: float | None
    """Share of steady steps that found no batch ready."""
    enough_workers: int | None
    """Workers that keep up with the steps, with one to spare, if CPUs are no limit."""
    loaders: tuple[InputLoader, ...] = ()
    workers: tuple[InputWorker, ...] = ()
    parts: tuple[InputPart, ...] = ()
    """Most expensive first."""
    queues: tuple[InputQueue, ...] = ()
    slowest: int | None = None


def enough_workers(make_ms: float, step_ms: float) -> int:
    """Workers that keep up with the steps, if CPUs are no limit: what view and findings name.

    Args:
        make_ms: Time in which one of them makes a batch.
        step_ms: A step without its wait for data, above 0.

    Returns:
        Their number, one of them to spare.
    """
    return math.ceil(make_ms / step_ms) + 1
