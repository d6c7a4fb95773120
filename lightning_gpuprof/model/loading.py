"""How the training loop is fed, and what more DataLoader workers would gain."""

from __future__ import annotations

import math

import msgspec

from lightning_gpuprof.model.finding import worthwhile
from lightning_gpuprof.model.input_pipeline import InputLoader, enough_workers
from lightning_gpuprof.model.missing import NOT_COMPUTED, Unmeasured
from lightning_gpuprof.model.numbers import counted, millis, round_number
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.model.worker_time import WorkerTime

RECEIVE_MS = 0.5
"""What it costs the main thread at least to take a finished batch from a worker process.

Heuristic: small tensors took 1.0 ms (5th percentile) to 3.3 ms (median of 800 kB batches) on 2 CPUs; the bound of the
gain uses half of the least, so that it stays a bound."""

LIKELY_RECEIVE_MS = 1.8
"""What it costs the main thread to take a finished batch. Heuristic: the median wait beside workers that keep up in 24
fits on two quiet CPUs, 0.2 to 2.9 ms."""

HELD_UP_POWER = 6
"""How a step meets several limits: they hold up different steps, so that the mean is above the largest of them. The
root of the sum of powers is 12 % above two equal ones, and 0.3 % above one of twice the other. Heuristic: of 4, 6, 8
and the largest alone, the one nearest to 52 pairs of fits whose workers were changed."""

HANDOVER_MS = 0.5
"""What a worker that mostly waits needs per batch beside making it. Heuristic: 12 fits on two CPUs."""

BUSY_HANDOVER_MS = 1.6
"""The same of a worker that computes. Heuristic: two fits on two CPUs, 1.5 and 1.7 ms."""

SHARING_MS = 3.5
"""CPU time that a batch costs more where workers and the model use up all CPUs. Heuristic: 1.4 to 3.9 ms in three fits
on two quiet CPUs, up to 8.5 ms while the machine's neighbours were busy."""

MOST_SHARING_RATIO = 0.4
"""Of the CPU time of a step, the most that this is. Heuristic: 0.2 to 0.6 in these runs."""

SLOW_SHARING_RATIO = 0.15
"""Of the CPU time of a long step, what sharing may cost. Heuristic: 0.5 and 13 % in two runs of the digits, whose
steps have 200 ms of it."""

RECEIVE_GUARD_MS = 3.0
"""What the same may cost without anything being wrong: with workers, a shorter wait does not show an empty queue.
Heuristic, same measurement."""

SINGLE_GUARD_MS = 1.0
"""Wait of a loader without workers that workers would not shorten for certain. Heuristic, same measurement."""

EMPTY_QUEUE_RATIO = 0.30
"""Share of steps that find no batch ready from which the workers are behind. MindInsight: queue empty above 30 %."""

MIN_WAIT_RATIO = 0.05
"""Share of the step from which waiting for a batch is worth a word. torch-tb-profiler: DataLoader above 5 %."""

MIN_IDLE_RATIO = 0.05
"""Share of the step in which the device has no work, below which waiting for data is free. Heuristic."""

SPIN_MS = 5.0
"""How long an idle OpenMP thread keeps a CPU busy before it sleeps. Heuristic: about 6 ms per step were seen with two
threads."""

CPU_BOUND_RATIO = 0.5
"""CPU time over wall time of the loading from which it competes for CPUs. Heuristic: below it, workers mostly wait."""

IN_TIME_RATIO = 0.8
"""Time between two batches of the workers over the step without its wait, up to which more workers bring nothing.
As in the verdict of the input pipeline."""

CROWDED_RATIO = 0.25
"""Share of the usable CPUs that others use, from which workers may be slow because of them. Heuristic."""

MAX_PREFETCH = 64
"""Batches per worker that are proposed at most: a longer queue costs memory in ``/dev/shm``. Heuristic."""

TIMES_CHEAPER = 4.0
"""How many times less CPU time a batch may take that is decoded and resized once before the run. Heuristic."""

STREAM_SAMPLER = "_InfiniteConstantSampler"
"""What torch gives a loader whose dataset is iterable: no sampler can be chosen then."""

MAX_WORKERS = 16
"""Most workers that are proposed where they mostly wait and CPUs are no limit. Heuristic: each is a process with its
own memory."""

_MIN_COMPUTE_MS = 0.05


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """The wait for batches of a steady step, and what it costs."""

    order: InputLoader | None = None
    """The loader whose sampler takes longest for the indices of a batch; None if that was not measured."""
    making: Share | Unmeasured = NOT_COMPUTED
    """The wait while the slowest loader's batches are made: without the time of the sampler and of other loaders that
    have no workers, which stays in the main process."""
    idle_ratio: float | None = None
    """Share of a step in which the device has no work and a batch is waited for, 1 on a CPU; of a device that was not
    seen during the fetch its idle share of the step. None: no trace window shows it."""
    making_idle_ratio: float | None = None
    """The same without what these cost of it: no idle time is gained twice."""
    is_seen: bool = False
    """Whether it is known what a wait costs: on a CPU, or where a window shows the device also before a fetch."""
    workers_set_the_pace: bool = False
    """Whether steps wait for workers that are behind: whatever else gets shorter, the wait gets longer. Without workers
    it does not: then a batch takes as long to make, however long the rest of the step is."""


class CpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """CPU time per step within bounds: of a process it is known only as a whole."""

    least_ms: float
    most_ms: float


class WorkerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A number of workers and what it brings."""

    num_workers: int
    period_ms: float
    """T', the step time that is left at best."""
    recoverable_ms: float
    """R = min(W, max(0, T - T'), idle time of the device)."""
    lower_ms: float
    """R from the lower bound of the wait and the most that taking a batch from a worker may cost."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The step time below which workers that make batches all the time cannot keep up."""

    workers: int
    batch_ms: float
    """Time from one batch to the next."""
    period_ms: float
    """T, of the steps as they are."""

    @property
    def room_ms(self) -> float:
        """The most that a step can get shorter at this pace; 0 if that is not worthwhile."""
        room_ms = max(0.0, self.period_ms - self.batch_ms)
        return room_ms if worthwhile(room_ms, self.period_ms) else 0.0

    @property
    def words(self) -> str:
        """``2 workers deliver a batch every 12.0 ms at best``."""
        verb = "delivers" if self.workers == 1 else "deliver"
        return f"{counted(self.workers, 'worker')} {verb} a batch every {millis(self.batch_ms)} at best"


class Loading(msgspec.Struct, frozen=True, kw_only=True):
    """How the training loop is fed, per steady step."""

    period_ms: float
    wait: Share
    """For batches while they are made: :attr:`Fetch.making`."""
    num_workers: int
    batch_ms: float
    """P, the time that one batch takes to make in one process: the mean as measured there, or, with workers, the most
    that it can be: all of them at work all the time."""
    cpu_ms: CpuTime | None
    """CPU time that making one batch takes; None: not known."""
    used_cpus: float | None
    """CPUs that the main process and its workers used; None: not known."""
    usable_cpus: float
    on_gpu: bool
    dataset: str
    compute_threads: int | None = None
    """Threads on which torch computes the model on the same CPUs; None: on a GPU, or not known."""
    slowest_batch_ms: float | None = None
    """What a batch with the slowest sample takes in a worker; None: samples were not timed."""
    queue_pace_ms: float = 0.0
    """The mean step is at least this, however long the queue: in order, each of n workers loads every n-th batch, so it
    is 1 / n of the slowest worker's mean batch. 0: not known, or batches come in any order."""
    made: InputLoader | None = None
    """How batches are made, as measured in the processes that make them; None: not measured there."""
    queued_ms: float = 0.0
    """Time per step in which what makes batches was ready to run but had no CPU, over all its processes; 0 also where
    that was not measured."""
    others_cpus: float | None = None
    """CPUs that processes of others used of the usable ones; None: not known."""
    idle_ratio: float | None = 1.0
    """Share of the step in which the device has no work while the batch is made, all of it on a CPU: the rest of the
    wait is free. None: no trace window shows it."""
    is_stream: bool = False
    """An iterable dataset: each worker runs all of it, unless it takes a part for each."""
    has_model: bool = False
    """The dataset uses the model that is trained; workers would have copies that do not learn."""
    worker_time: WorkerTime | Unmeasured = NOT_COMPUTED
    """What the workers do while they make batches."""
    waited_ratio: float | None = None
    """Share of steps that found no batch ready; with workers, only an empty queue shows that they are behind."""
    fetch_cost_ms: float | None = None
    """What each fetch costs whatever it brings: the wait without the time of the items, and 0 where the wait is for
    workers that are behind. None: not measured where batches are made."""
    guard_ms: float
    """What a fetch may cost although nothing is wrong."""
    elsewhere_ms: float = 0.0
    """What the sampler and other loaders take of the step's wait for data, which :attr:`wait` is without."""
    delayed_ms: float = 0.0
    """How long the model waits for a CPU in each step while workers compute batches: a cheaper batch ends that as
    well."""
    pace: Pace | None = None
    """What is left if workers make batches all the time. None: no workers, or it was not measured in them."""
    bursts: Loading | None = None
    """The same of a mean step, if workers that are behind deliver several batches at a time: then few steps wait, but
    for long, and medians show nothing or little of it."""

    @property
    def compute_ms(self) -> float:
        """Median time that the step needs without the wait."""
        return max(_MIN_COMPUTE_MS, self.period_ms - self.wait.median_ms)

    @property
    def mean_ms(self) -> float:
        """The mean step: exact if steps differ in their wait only."""
        return self.compute_ms / (1.0 - min(0.99, self.wait.total_ratio))

    @property
    def queue_saves_ms(self) -> float:
        """The most that a longer queue saves of the mean step."""
        return max(0.0, self.mean_ms - self.queue_pace_ms)

    @property
    def one_worker_lags(self) -> bool:
        """Whether the slowest worker leaves a longer queue less than half of what batches in any order would save."""
        least_ms = max(self.compute_ms, self.batch_ms / max(1, self.num_workers))
        return self.queue_saves_ms < 0.5 * (self.mean_ms - least_ms)

    @property
    def waited_ms(self) -> float:
        """All of the step's wait for data."""
        return self.wait.median_ms + self.elsewhere_ms

    def queue_for(self, slow_ms: float) -> int:
        """Batches that each worker must have ready, ``prefetch_factor``, for the steps to go on during a slow one.

        The others are used up, one per step of the model, until it comes: with n workers, (S / C + 1) / n.
        """
        return min(MAX_PREFETCH, round_number(math.ceil((slow_ms / self.compute_ms + 1) / max(1, self.num_workers))))

    @property
    def idle_ms(self) -> float:
        """The most that a wait can cost per step: the device's idle time, or all where that is not known."""
        return self.period_ms if self.idle_ratio is None else self.idle_ratio * self.period_ms

    @property
    def is_free(self) -> bool:
        """Whether the device is known to work nearly all the time, so that a wait costs next to nothing."""
        return self.idle_ratio is not None and self.idle_ratio < MIN_IDLE_RATIO

    @property
    def cpu_bound(self) -> bool | None:
        """Whether loading a batch keeps a CPU at work, or waits for one, rather than for storage; None: not known."""
        # CPU time is known per median step: a mean time of batches that steps in bursts wait for is not held to it.
        whole_ms = min(self.batch_ms, self.max_batch_ms)
        return None if self.cpu_ms is None else self.cpu_ms.most_ms + self.queued_ms >= CPU_BOUND_RATIO * whole_ms

    @property
    def free_cpus(self) -> float | None:
        """CPUs that neither this run nor, as far as that is known, anybody else used; None: not known."""
        if self.used_cpus is None:
            return None
        return max(0.0, self.usable_cpus - self.used_cpus - (self.others_cpus or 0.0))

    @property
    def is_crowded(self) -> bool:
        """Whether others use so much of the CPUs that workers may be slow because of them."""
        return (self.others_cpus or 0.0) >= CROWDED_RATIO * self.usable_cpus

    @property
    def lacks_cpus(self) -> bool:
        """Whether others use CPUs that workers would need."""
        return self.is_crowded and self.cpu_bound is not False

    @property
    def loading_cpus(self) -> float | None:
        """CPUs for loading batches in workers: those that neither the main process nor others use; None: not known."""
        if self.used_cpus is None or self.cpu_ms is None:
            return None
        main_cpus = max(0.0, self.used_cpus - self.cpu_ms.least_ms / self.period_ms)
        return max(0.0, self.usable_cpus - main_cpus - (self.others_cpus or 0.0))

    @property
    def cheaper_saves_ms(self) -> float:
        """What a cheaper batch saves of a step at most: the wait, as far as the CPUs for loading batches allow it."""
        if not self.num_workers or not self.cpu_bound or self.cpu_ms is None or not self.loading_cpus:
            return self.wait.median_ms
        pace_ms = self.cpu_ms.least_ms / TIMES_CHEAPER / self.loading_cpus
        return min(self.wait.median_ms, max(0.0, self.period_ms - pace_ms))

    @property
    def saves_ms(self) -> tuple[float, float]:
        """What more workers, else a cheaper batch, save of a step at most, and the lower bound of that."""
        plan = self.helpful_plan
        whole_ms = (self.cheaper_saves_ms, self.wait.lower_ratio * self.period_ms)
        return whole_ms if plan is None else (plan.recoverable_ms, plan.lower_ms)

    @property
    def recommended_workers(self) -> int:
        """Workers with which batches come faster than steps use them, if CPUs were no limit: as the view has it."""
        return enough_workers(self.batch_ms, self.compute_ms)

    @property
    def max_batch_ms(self) -> float:
        """The most that loading a batch can take in a median step."""
        return self.wait.median_ms if self.num_workers == 0 else self.num_workers * self.period_ms

    @property
    def certain_ratio(self) -> float:
        """Lower bound of the wait's share, without what a fetch may cost although nothing is wrong."""
        return max(0.0, self.wait.lower_ratio - self.guard_ms / self.period_ms)

    @property
    def fixable_ratio(self) -> float:
        """Lower bound of the share that more workers can take off: without the most that taking a batch may cost."""
        return max(0.0, self.wait.lower_ratio - RECEIVE_GUARD_MS / self.period_ms)

    @property
    def made_in_time(self) -> bool:
        """Whether workers, as measured in them, make batches well before the step wants them.

        What is waited for then is the way of a batch to the main thread, or a CPU for it.
        """
        measured = self.num_workers > 0 and self.made is not None
        return measured and self.batch_ms / self.num_workers <= IN_TIME_RATIO * self.compute_ms

    @property
    def plan(self) -> WorkerPlan:
        """The number of workers with which the step no longer waits, as far as CPUs allow, and what it brings.

        ``ceil(P / T_compute) + 1`` workers, not more than usable CPUs where loading a batch is CPU work (or where that
        is not known), at least one. Afterwards the step takes at least the step without its wait plus the receipt of a
        batch, at least ``P / workers``, and at least the CPU time of one step over the usable CPUs. No more is gained
        than the device idles.
        """
        most = MAX_WORKERS if self.cpu_bound is False else max(1, int(self.usable_cpus))
        workers = max(1, min(self.recommended_workers, most))
        # CPU work that is not known is taken for the whole batch: the careful assumption.
        work_ms = self.compute_ms + (self.batch_ms if self.cpu_ms is None else self.cpu_ms.least_ms)
        pace_ms = max(self.batch_ms / workers, work_ms / self.usable_cpus if self.usable_cpus > 0 else 0.0)
        period_ms = max(self.compute_ms + RECEIVE_MS, pace_ms)
        most_ms = max(self.compute_ms + RECEIVE_GUARD_MS, pace_ms)
        wait_ms = min(self.wait.median_ms, self.idle_ms)
        slack_ms = self.wait.median_ms - self.wait.lower_ratio * self.period_ms
        return WorkerPlan(
            num_workers=workers,
            period_ms=period_ms,
            recoverable_ms=min(wait_ms, max(0.0, self.period_ms - period_ms)),
            lower_ms=max(0.0, min(wait_ms, self.period_ms - most_ms) - max(0.0, slack_ms)),
        )

    def step_times_ms(self, workers: int, *, warm_ms: float = 0.0) -> tuple[float, float, float]:
        """The mean step with this many workers.

        From three times: the step without its wait and the receipt of a batch; the time from one batch of the workers
        to the next; the CPU time of a step over the usable CPUs. Bounds have the largest; see :data:`HELD_UP_POWER`.

        Args:
            workers: At least one.
            warm_ms: What the rest of the step is faster when it no longer waits.

        Returns:
            In ms: at least, most likely, at most.
        """
        handover_ms = HANDOVER_MS if self.cpu_bound is False else BUSY_HANDOVER_MS
        cpu_ms = self.compute_ms + (self.batch_ms if self.cpu_ms is None else self.cpu_ms.least_ms)
        cpus = max(self.usable_cpus, 0.1)
        left_cpus = max(cpus - (self.others_cpus or 0.0), 0.1)
        sharing_ms = min(SHARING_MS, MOST_SHARING_RATIO * cpu_ms)
        likely_ms = (
            self.compute_ms - warm_ms + LIKELY_RECEIVE_MS,
            (self.batch_ms + handover_ms) / workers,
            (max(cpu_ms, self._threads_ms) + sharing_ms) / (left_cpus if self.lacks_cpus else cpus),
        )
        least_ms = (
            self.compute_ms - 2 * warm_ms + RECEIVE_MS,
            self.batch_ms / workers,
            (cpu_ms + 0.4 * sharing_ms) / cpus,
        )
        most_ms = (
            self.compute_ms + RECEIVE_GUARD_MS,
            (self.batch_ms + 2 * handover_ms) / workers,
            (cpu_ms + max(2.4 * sharing_ms, SLOW_SHARING_RATIO * cpu_ms)) / left_cpus,
        )
        mean_ms = sum(time_ms**HELD_UP_POWER for time_ms in likely_ms) ** (1 / HELD_UP_POWER)
        return max(least_ms), mean_ms, max(mean_ms, *most_ms)

    @property
    def _threads_ms(self) -> float:
        """CPU time of a step whose model computes on several threads, without what these spin for work."""
        threads = self.compute_threads or 1
        if threads == 1 or self.used_cpus is None:
            return 0.0
        return self.used_cpus * self.period_ms - (threads - 1) * min(SPIN_MS, self.wait.median_ms)

    @property
    def better_plan(self) -> WorkerPlan | None:
        """The plan, if it has more workers than now, the device idles meanwhile, and its gain is worthwhile.

        Otherwise None.
        """
        if self.is_free or self.has_model:
            return None
        plan = self.plan
        helps = plan.num_workers > self.num_workers and worthwhile(plan.recoverable_ms, self.period_ms)
        return plan if helps else None

    @property
    def helpful_plan(self) -> WorkerPlan | None:
        """The plan, if more workers are the fix.

        None if the wait may be the price of any fetch, if workers are not behind or make their batches in time, if no
        more of them than now are possible, if the device has work meanwhile, or if the gain is not worthwhile.
        """
        if self.certain_ratio < MIN_WAIT_RATIO:
            return None
        if self.num_workers and (self.waited_ratio is None or self.waited_ratio < EMPTY_QUEUE_RATIO):
            return None
        return None if self.made_in_time else self.better_plan


class Starving(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that wait for batches because making these takes longer than using them."""

    state: Loading
    """Per step; where batches come in bursts, of mean rather than of median steps."""
    made: InputLoader
    """How the loader that sets the pace makes its batches, as measured there."""
    bursts: bool
    """Few steps wait, but for long: several workers hand over their batches at about the same time."""

    @property
    def dataset(self) -> str:
        """What findings are about: its class, if that is known."""
        return self.state.dataset or "DataLoader"

    @property
    def make_ms(self) -> float:
        """Time in which one process makes a batch."""
        return self.made.make_ms or 0.0

    def saved_ms(self, part: float) -> float:
        """The most that is gained per step if a part (0 to 1) of the making of batches went away.

        With n processes that make batches in P ms each, a batch comes P / n ms after the one before; without the part
        p ms of it that is p / n less. So R = min(W, p / n), without workers p itself, and no more than the device
        idles. To the wait W of batches in bursts belongs what the model waits for a CPU that the workers take.
        """
        whole_ms = self.make_ms / max(1, self.state.num_workers)
        delayed_ms = self.state.delayed_ms if self.bursts else 0.0  # else that is expected, beyond the wait
        return min(self.state.wait.median_ms + delayed_ms, part * whole_ms, self.state.idle_ms)
