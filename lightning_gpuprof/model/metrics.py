"""What rules read: everything that was computed from a run's journals and windows, with ``None`` for "not measured".

Built by ``analyze``; rules only compare and put into words.
"""

import math
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.accumulation import Accumulation
from lightning_gpuprof.model.batch_shapes import BatchShapes
from lightning_gpuprof.model.collectives import CollectiveRun
from lightning_gpuprof.model.conditions import condition_of
from lightning_gpuprof.model.cost import Cost
from lightning_gpuprof.model.curves import RankRow, Ranks
from lightning_gpuprof.model.device_kernels import DeviceRun
from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.epochs import EpochGaps, WorkerStarts
from lightning_gpuprof.model.evenness import Evenness, Growth, LevelChange
from lightning_gpuprof.model.finding import MIN_STEPS
from lightning_gpuprof.model.gpu import Gpu
from lightning_gpuprof.model.host_time import (
    AlgorithmTrials,
    BesideModel,
    Contention,
    HostLimit,
    MetricCalls,
    OptimizerUpdate,
    PythonTime,
)
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.loading import Fetch, Loading, Starving
from lightning_gpuprof.model.memory import MemoryHolders
from lightning_gpuprof.model.missing import NOT_COMPUTED, MissingSignal, Unmeasured, require_possible
from lightning_gpuprof.model.numbers import possible
from lightning_gpuprof.model.outliers import Outliers, Stalls
from lightning_gpuprof.model.phases import Part, Phase
from lightning_gpuprof.model.rank_memory import RankMemory
from lightning_gpuprof.model.rank_times import RankTimes
from lightning_gpuprof.model.report import Measured
from lightning_gpuprof.model.share import Share, usable
from lightning_gpuprof.model.trace.idle import IdleShare
from lightning_gpuprof.model.waiting import Blocked, InterpreterLock, InterpreterWait, Waiting

OUTSIDE_PARTS: tuple[Part, ...] = ("validation", "checkpoint", "epoch_gap")
"""Parts of the wall time outside the steps that a run can do less of."""

MIN_OUTSIDE_S = 1.0
"""Seconds outside the steps from which a run of few steps is judged by them. Heuristic."""

MOSTLY_OUTSIDE_RATIO = 0.5
"""Their share of the run, likewise. Heuristic."""


class LoaderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The training DataLoader as configured; a value is None if the loader is not a ``torch`` DataLoader."""

    kind: str
    num_workers: int | None
    batch_size: int | None
    pin_memory: bool | None
    persistent_workers: bool | None
    prefetch_factor: int | None
    dataset: str = ""
    """Class name of the dataset."""

    @property
    def queued_per_worker(self) -> int:
        """Batches that each worker makes ahead; where it is not set, torch's default."""
        return 2 if self.prefetch_factor is None else self.prefetch_factor


class CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Processors that this run may use and how busy they were; 1.0 is one full CPU. None: not measured."""

    usable_cpus: float
    """min(affinity, cgroup quota) divided by the ranks on this host."""
    process_cpus: float | None
    """CPU time of the main process per second, over the training part."""
    worker_cpus: float | None
    """Sum over DataLoader workers."""
    run_delay_ratio: float | None = None
    """Median share of the step time in which the main thread was ready to run but had no CPU."""
    run_delay: Share | None = None
    """The same with its lower bound."""
    run_delay_samples: int = 0
    """Steady steps in which it was read."""


class EpochStart(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs until the first batch of an epoch is there."""

    epoch: int
    gap_s: float
    """From the end of the last step of the epoch before to the first step of this one; validation and checkpoints
    within are not counted."""
    iterator_s: float
    """``iter(dataloader)``: worker processes are started here."""
    first_wait_s: float
    """Fetch of the first batch."""
    steps_s: float
    """Time of all steps of this epoch."""


class CallbackShare(msgspec.Struct, frozen=True, kw_only=True):
    """A callback over all its per-batch hooks in steady steps."""

    name: str
    hook: str
    """Its most expensive hook."""
    share: Share

    @property
    def class_name(self) -> str:
        """Its class, and what separates it from another of its class; the state key may go on in braces."""
        return self.name.split("{", 1)[0]


class CallbackCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the per-batch hooks of one owner take of ordinary steps."""

    owner: str
    """Class of the callback; or the LightningModule, for what no callback has of the phase."""
    hook: str
    """The most expensive one; empty if it was not separated."""
    ratio: float
    """Certain share of the step."""
    median_ms: float


class HookShare(msgspec.Struct, frozen=True, kw_only=True):
    """A hook of the LightningModule or its DataModule in steady steps."""

    owner: str
    """Class."""
    hook: str
    share: Share
    """Without hooks that it calls."""
    site: str = ""
    """``file:line function`` where the main thread was most often seen in it; empty if it was not."""


class LoggerWrites(msgspec.Struct, frozen=True, kw_only=True):
    """What one logger takes in steady steps to write values."""

    name: str
    """Its class, and what separates it from another of its class."""
    share: Share
    count: int
    """Steps in which it wrote."""
    each_ms: float
    """Median over these."""


class Recurring(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens now and then: validation runs, checkpoints."""

    count: int
    total_s: float
    median_s: float | None
    subject: str = ""


class Metrics(Measured, frozen=True, kw_only=True):
    """All numbers of one run, for one rank: what its report has, and what only rules read."""

    status: str
    shares: Mapping[Phase, Share]
    """Empty if there are no steady steps."""
    callback_shares: tuple[CallbackShare, ...]
    """Without this profiler's own; largest first."""
    loader: LoaderFacts | None
    cpu: CpuFacts
    fetch_waited_ratio: float | None
    """Share of steady steps whose fetch took longer than 0.2 ms and 2 % of the step time: the queue was empty."""
    epoch_starts: tuple[EpochStart, ...]
    validation: Recurring
    checkpoint: Recurring
    blocked: tuple[Blocked, ...] | None
    """None: main-thread CPU time was not measured."""
    outliers: Outliers | None
    """None: too few steps to judge (50)."""
    device_step: DeviceStep | Unmeasured = Unmeasured(why="no trace window was recorded")
    """What the busiest device does in an untraced step."""
    host_limit: HostLimit = msgspec.field(default_factory=HostLimit)
    """How much of a step time of the host can hold up."""
    waiting: Waiting | Unmeasured = NOT_COMPUTED
    """What the main thread waits for in the phases in which it works."""
    interpreter_wait: InterpreterWait | Unmeasured = NOT_COMPUTED
    """How it waits for another thread that holds the interpreter."""
    device_run: DeviceRun | Unmeasured | None = NOT_COMPUTED
    """The windows that rules on kernels can look at; None: the model runs on the CPU."""
    gpus: tuple[Gpu, ...] = ()
    """The sampled GPUs, with what holds their clocks and links down."""
    holders: MemoryHolders = msgspec.field(default_factory=MemoryHolders)
    """How full the GPU's memory is, and who holds it."""
    idle_causes: tuple[IdleShare, ...] = ()
    """Of the busiest device in the last window in which one idles."""
    beside_model: tuple[BesideModel, ...] = ()
    """Largest share first."""
    copies_to_device_ms: float | None = None
    """Time of a traced step's copies to the device, whether or not kernels ran beside them; None: not known."""
    fetch: Fetch = msgspec.field(default_factory=Fetch)
    """What the wait for batches costs."""
    loading: Loading | Unmeasured = NOT_COMPUTED
    """How the training loop is fed."""
    callback_costs: tuple[CallbackCost, ...] = ()
    """By owner, largest share first."""
    contention: Contention = msgspec.field(default_factory=Contention)
    """How the main thread waits for a CPU, and who takes them."""
    starving: Starving | Unmeasured | None = NOT_COMPUTED
    """How steps wait for batches that are made too slowly; None: they do not."""
    collectives: CollectiveRun | Unmeasured | None = NOT_COMPUTED
    """What communication costs; None: there is one rank, or no communication."""
    python_time: PythonTime | Unmeasured = NOT_COMPUTED
    """What of a training on the CPU no operator of torch takes."""
    algorithm_trials: AlgorithmTrials | Unmeasured = NOT_COMPUTED
    """What cuDNN takes to time its algorithms."""
    metric_calls: MetricCalls | Unmeasured = NOT_COMPUTED
    """What calls of metrics that update twice take."""
    optimizer_update: OptimizerUpdate | Unmeasured = NOT_COMPUTED
    """What the update of the parameters takes, and what it would take fused."""
    level_change: LevelChange | Unmeasured | None = NOT_COMPUTED
    """Between the speed levels of the run; None: it has one."""
    growth: Growth | Unmeasured | None = NOT_COMPUTED
    """Of the steps, from the first to the last; None: they do not grow gradually."""
    stalls: Stalls | Unmeasured = NOT_COMPUTED
    """What :attr:`outliers` can be blamed on."""
    epoch_gaps: EpochGaps | Unmeasured | None = NOT_COMPUTED
    """Time between epochs without a step; None: there is one epoch."""
    worker_starts: WorkerStarts | Unmeasured | None = NOT_COMPUTED
    """What starting the workers costs, if they are started at each epoch; None: there is one epoch."""
    ranks: RankTimes | Unmeasured | None = None
    """The ranks side by side; None: there is one."""
    rank_memory: RankMemory | Unmeasured | None = None
    """The memory of their GPUs side by side, likewise."""
    batch_shapes: BatchShapes | Unmeasured = Unmeasured(why="no batch was inspected")
    """Of the few batches inspected."""
    evenness: Evenness = msgspec.field(default_factory=Evenness)
    logging_without_delay: Share | None = None
    """Logging without the time in which the thread was ready to run but had no CPU; None: little, or not measured."""
    log_calls: Share | None = None
    """``self.log`` in hooks, which ``log_every_n_steps`` makes no rarer; None: never called, or not measured."""
    logger_writes: tuple[LoggerWrites, ...] = ()
    """By logger, largest part of the total first; a part of the time of logging."""
    lr_scheduler: Share | None = None
    """Stepping the learning rate schedulers, a part of the optimizer's phase; None: they are not stepped in steps."""
    interpreter_lock: InterpreterLock | None = None
    """None: the CPU time of other threads was not measured."""
    transfer_hooks: tuple[HookShare, ...] = ()
    """Hooks of the user's own around the move of the batch, largest first."""
    accumulation: Accumulation | Unmeasured | None = None
    """Optimizer steps of manual optimization; None: it is automatic, or DDP reduces no gradients."""

    def condition(self, name: str) -> Value:
        """A fact about the run by its dotted name, such as ``loader.num_workers``; None if it is not known.

        Of several training loaders that is the slowest one's, but for the batch size: that is of the largest batch.
        """
        return condition_of(self.run, name, None if self.input is None else self.input.slowest)

    @property
    def slowest_of_loaders(self) -> str:
        """``the slowest of 2 loaders, ['labelled']``; empty: there is one, or it is not known which one is slow."""
        slowest, count = None if self.input is None else self.input.slowest, self.positive("loader.count")
        key = None if slowest is None else self.run.get(f"loader.{slowest}.key")
        return "" if key is None or count is None else f"the slowest of {count} loaders, {key}"

    def positive(self, name: str) -> int | None:
        """A fact that is a size or a count above 0; None if it is not known, or none."""
        value = self.run.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def number(self, name: str) -> float | None:
        """A fact that is a finite number of at least 0; None if it is not known, or none."""
        value = self.run.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not possible(value):
            return None
        return value

    @property
    def is_cpu_only(self) -> bool | None:
        """Whether the model runs on the CPU, so that host time is the model's own time; None: not known."""
        device = self.run.get("device.type")
        return None if device is None else device == "cpu"

    @property
    def least_logging_ms(self) -> float | None:
        """Of the rank whose logging is shortest, if ranks exchange logged values: others also wait for it there.

        None: nothing is exchanged, or nothing is known of the other ranks.
        """
        table = self.rank_table
        if table is None or not self.positive("trainer.synced_values"):
            return None
        return min((row.phases_ms.get("logging", 0.0) for row in table.rows), default=None)

    @property
    def rank_table(self) -> Ranks | None:
        """The ranks side by side as the report has them; None where they were not compared."""
        found = self.ranks
        if not isinstance(found, RankTimes):
            return None
        return Ranks(
            world_size=found.world_size,
            steps=found.steps,
            own_phases=found.phases,
            left_out=found.left_out,
            rows=tuple(
                RankRow(
                    rank=one.rank,
                    host=one.host,
                    period_ms=one.period_ms,
                    phases_ms=dict(one.phases_ms),
                    excess_ms=one.excess_ms,
                    samples_per_s=1e3 * one.batch_samples / one.period_ms
                    if one.batch_samples and one.period_ms
                    else None,
                    peak_memory_bytes=one.peak_memory_bytes,
                )
                for one in found.ranks
            ),
        )

    @property
    def is_distributed(self) -> bool:
        """Whether several ranks train together, so that a rank may wait for another inside its backward pass."""
        return (self.positive("trainer.world_size") or 1) > 1

    @property
    def step_ms(self) -> float:
        """Median step time of the steady unprofiled steps in ms.

        Raises:
            MissingSignal: There are fewer than :data:`MIN_STEPS` such steps, or their step time is no positive number.
        """
        return self.require_steady()

    def require_steady(self) -> float:
        """:attr:`step_ms`, for rules that need steady steps and not their time.

        Raises:
            MissingSignal: As :attr:`step_ms`.
        """
        steady, period_ms = self.steps.steady_count, self.period_ms
        if steady < MIN_STEPS:
            raise MissingSignal(f"{steady} steady steps were measured, {MIN_STEPS} are needed")
        if period_ms is None or not math.isfinite(period_ms) or period_ms <= 0:
            raise MissingSignal("the step time was not measured")
        return period_ms

    def share_of(self, phase: Phase) -> Share:
        """Share of a phase in steady steps.

        Raises:
            MissingSignal: The phase was not measured.
        """
        share = self.share(phase)
        if share is None:
            raise MissingSignal(f"the share of {phase} in the steps was not measured")
        return share

    def cost(
        self,
        ms: float,
        lower_ms: float,
        *,
        step_ms: float | None = None,
        most_ratio: float | None = math.inf,
        samples: int | None = None,
    ) -> Cost:
        """What something costs an ordinary step.

        Args:
            ms: Per step.
            lower_ms: The part of it that is certain.
            step_ms: Of a mean step, for instance; default: :attr:`step_ms`.
            most_ratio: As :attr:`Cost.most_ratio`.
            samples: Steady steps in which it was measured; default: all.

        Returns:
            One that rests on ``samples`` steps, but not on more than are steady.

        Raises:
            MissingSignal: As :attr:`step_ms`.
        """
        step_ms = self.step_ms if step_ms is None else step_ms
        steps = self.steps.steady_count if samples is None else min(self.steps.steady_count, samples)
        return Cost(ms=ms, lower_ms=lower_ms, step_ms=step_ms, steps=steps, most_ratio=most_ratio)

    def cost_of(self, share: Share) -> Cost:
        """What something costs an ordinary step, by its share.

        Raises:
            MissingSignal: As :attr:`step_ms`.
        """
        return self.cost(share.median_ms, share.lower_ratio * self.step_ms)

    def run_cost(self, seconds: float, lower_s: float | None = None) -> Cost:
        """What something costs outside of the ordinary steps, spread over all steps of the run.

        Args:
            seconds: In all.
            lower_s: The part of it that is certain; default: all.

        Returns:
            Per step of all steps, as a part of :attr:`run_ms_per_step`.

        Raises:
            MissingSignal: As :attr:`run_s`.
        """
        step_ms, per_step = self.run_ms_per_step, 1e3 / self.steps.count
        return Cost(
            ms=seconds * per_step,
            lower_ms=(seconds if lower_s is None else lower_s) * per_step,
            step_ms=step_ms,
            steps=max(MIN_STEPS if self.is_mostly_outside else 0, self.steps.steady_count),
        )

    @property
    def run_s(self) -> float:
        """Wall time without setup and teardown, in seconds: what shares outside the steps refer to.

        Raises:
            MissingSignal: The run has fewer than :data:`MIN_STEPS` steps, and is not mostly outside of them; or no wall
                time was measured.
        """
        if self.steps.count < MIN_STEPS and not self.is_mostly_outside:
            raise MissingSignal(f"{self.steps.count} steps were run, {MIN_STEPS} are needed")
        return self._run_s

    @property
    def run_ms_per_step(self) -> float:
        """:attr:`run_s` spread over all steps, in ms: with everything that happens between and beside steps."""
        return self.run_s * 1e3 / self.steps.count

    @property
    def outside_s(self) -> Mapping[Part, float]:
        """Seconds of the run outside its steps: validation, checkpoints and gaps between epochs."""
        return {part: self.wall.parts.get(part, 0.0) for part in OUTSIDE_PARTS}

    @property
    def is_mostly_outside(self) -> bool:
        """Whether most of the run, and no moment, is outside the steps: then it needs no number of steps to say so."""
        try:
            total_s = self._run_s
        except MissingSignal:
            return False
        spent_s = sum(self.outside_s.values())
        return self.steps.count >= 1 and spent_s >= max(MIN_OUTSIDE_S, MOSTLY_OUTSIDE_RATIO * total_s)

    @property
    def _run_s(self) -> float:
        parts = self.wall.parts
        # What no record accounts for is a difference and may be a little below 0.
        measured_s = (part_s for part, part_s in parts.items() if part != "unexplained")
        require_possible("a part of the wall time", *measured_s)
        left_s = self.wall.total_s - parts.get("setup", 0.0) - parts.get("teardown", 0.0)
        if not math.isfinite(left_s) or left_s <= 0:
            raise MissingSignal("the wall time of the run was not measured")
        return left_s

    @property
    def period_ms(self) -> float | None:
        """Median step time of steady unprofiled steps in ms; None if there are none."""
        return self.steps.period_ms.median if self.steps.period_ms else None

    @property
    def batch_size(self) -> int | None:
        """Of the training loader; None: not known, or the dataset makes its batches itself."""
        return self.loader.batch_size if self.loader is not None else None

    @property
    def num_workers(self) -> int | None:
        """Of the training loader; None: not known."""
        return self.loader.num_workers if self.loader is not None else None

    @property
    def interpreter_is_held(self) -> bool:
        """Whether another Python thread is known to keep the main thread waiting."""
        return isinstance(self.interpreter_wait, InterpreterWait) and self.interpreter_wait.is_held()

    def share(self, phase: Phase) -> Share | None:
        """Share of a phase in steady steps; None if the run has none, or its numbers are no possible ones."""
        share = self.shares.get(phase)
        return share if share is not None and usable(share) else None
