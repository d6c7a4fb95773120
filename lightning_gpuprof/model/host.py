"""What the machine did during the steps: the ``host`` of a report. ``None`` is "not measured", never 0."""

from statistics import median

import msgspec

from lightning_gpuprof.model.numbers import possible

LONG_PAUSE_S = 0.005
"""Pauses of the garbage collector from here on are recorded one by one."""


class Level(msgspec.Struct, kw_only=True, frozen=True):
    """Mean and largest of the samples during the steps."""

    mean: float
    max: float


class ProcessUse(msgspec.Struct, kw_only=True, frozen=True):
    """What a process used, or several together: sums, and of shares means."""

    count: float | None = None
    """Processes, on average."""
    cpu_cpus: Level | None = None
    """CPU time per second; 1.0 is one full CPU."""
    cpu_user_cpus: float | None = None
    """Of that, in programs."""
    cpu_system_cpus: float | None = None
    """Of that, in the kernel."""
    main_thread_cpus: float | None = None
    """Of that, by the main thread."""
    run_delay_ratio: Level | None = None
    """The main thread was ready to run but had no CPU."""
    io_wait_ratio: Level | None = None
    """The main thread waited for a disk, by the kernel's account (``kernel.task_delayacct``)."""
    disk_sleep_ratio: float | None = None
    """Samples that found it waiting for a disk (state D)."""
    waiting_ratio: float | None = None
    """Neither on a CPU nor waiting for one, but for a lock, a disk, a network. Only of a single process."""
    voluntary_switches_per_s: float | None = None
    """The main thread gave its CPU away to wait."""
    involuntary_switches_per_s: float | None = None
    """The main thread had to leave its CPU to another."""
    minor_faults_per_s: float | None = None
    """Pages that were mapped without a disk."""
    major_faults_per_s: float | None = None
    """Pages that had to be read from disk."""
    rss_bytes: Level | None = None
    """Resident; shared pages count in each process."""
    shared_bytes: Level | None = None
    """Backed by files and shared memory."""
    pss_bytes: Level | None = None
    """Resident, with shared pages divided; read now and then."""
    uss_bytes: Level | None = None
    """Private; read now and then."""
    read_bytes_per_s: Level | None = None
    write_bytes_per_s: Level | None = None
    read_call_bytes_per_s: Level | None = None
    """By system calls: disks, page cache, pipes and sockets; not what is mapped."""
    write_call_bytes_per_s: Level | None = None
    threads_count: float | None = None


class WorkerUse(msgspec.Struct, kw_only=True, frozen=True):
    """One DataLoader worker. Workers of a later epoch continue the row of the one whose place they take."""

    number: int
    samples: int
    use: ProcessUse


class ThreadUse(msgspec.Struct, kw_only=True, frozen=True):
    """Threads of the main process, of one kind."""

    kind: str
    """``main``, ``pin_memory``, ``gpuprof``, ``python``, ``autograd``, ``nccl``, ``cuda``, ``native``."""
    threads_count: float
    cpu_cpus: float | None = None
    """All of them together."""
    run_delay_ratio: float | None = None
    """As of a process, mean."""


class MachineUse(msgspec.Struct, kw_only=True, frozen=True):
    """The machine, or the virtual machine, as all of its processes use it."""

    cpu_busy_ratio: Level | None = None
    """Of the CPUs that this process may use, whoever used them."""
    cpu_others_cpus: Level | None = None
    """Used by other processes, without the job's other ranks where ``cpu_ranks_cpus`` is known."""
    cpu_ranks_cpus: Level | None = None
    """Used by the job's other ranks and their workers; None: no rank on this machine, or its journal is not in the
    folder."""
    cpu_steal_cpus: Level | None = None
    """Time that the hypervisor gave to other machines."""
    cpu_user_ratio: float | None = None
    """Of these CPUs' time, in programs."""
    cpu_system_ratio: float | None = None
    """Likewise, in the kernel."""
    cpu_io_wait_ratio: float | None = None
    """These CPUs were idle while a task waited for a disk."""
    load: Level | None = None
    """1-minute average of tasks that run or wait for a CPU or a disk."""
    memory_total_bytes: float | None = None
    memory_available_bytes: Level | None = None
    memory_available_min_bytes: float | None = None
    swap_used_bytes: Level | None = None
    swap_in_bytes_per_s: Level | None = None
    swap_out_bytes_per_s: Level | None = None
    swapping_samples: int | None = None
    network_received_bytes_per_s: Level | None = None
    """Without the loopback."""
    network_sent_bytes_per_s: Level | None = None
    """Likewise."""
    shm_size_bytes: float | None = None
    """Of ``/dev/shm``, by which workers hand over batches."""
    shm_used_ratio: Level | None = None
    """Of its size."""
    shm_free_min_bytes: float | None = None


class PressureUse(msgspec.Struct, kw_only=True, frozen=True):
    """Pressure stall information of one resource."""

    scope: str
    """``machine``, or ``cgroup`` for the control group of this process."""
    resource: str
    """``cpu``, ``memory``, ``io``."""
    some_ratio: Level | None = None
    """Share of the time in which at least one task waited for the resource."""
    full_ratio: Level | None = None
    """Share of the time in which all tasks did."""


class GroupUse(msgspec.Struct, kw_only=True, frozen=True):
    """The control group of this process: a container's limits."""

    quota_cpus: float | None = None
    """None: no limit."""
    memory_limit_bytes: float | None = None
    """None: no limit."""
    memory_used_bytes: Level | None = None
    """With cached files, which give way before the limit hurts."""
    memory_working_bytes: Level | None = None
    """Without files that have not been used for a while."""
    memory_used_ratio: Level | None = None
    """Of the limit."""
    memory_high_count: float | None = None
    """How often the group was slowed down for using more than ``memory.high``."""
    memory_max_count: float | None = None
    """How often it met its limit."""
    oom_kill_count: float | None = None
    """Processes of it that were killed for lack of memory."""
    periods_count: float | None = None
    """Periods of the quota during the steps."""
    throttled_count: float | None = None
    """Of them, those in which the quota was used up."""
    throttled_ratio: float | None = None
    """Throttled periods over all periods."""
    throttled_cpus: float | None = None
    """CPU seconds per second that the group was held back for, all CPUs together."""


class GenerationPauses(msgspec.Struct, kw_only=True, frozen=True):
    """Collections of one generation during the steps."""

    generation: int
    """0 collects what is young, 2 everything."""
    count: int
    total_s: float
    longest_s: float


class LongPause(msgspec.Struct, kw_only=True, frozen=True):
    """One long pause."""

    batch: int | None
    """``total_batch_idx`` of the step that it began in; None: between two steps."""
    generation: int
    """0 collects what is young, 2 everything."""
    pause_s: float


class GcUse(msgspec.Struct, kw_only=True, frozen=True):
    """Pauses of Python's garbage collector: no Python code runs in them."""

    pause_ratio: float
    """Share of the time during the steps."""
    pause_ms_per_step: float | None
    """Mean; None without steps."""
    longest_s: float
    generations: tuple[GenerationPauses, ...] = ()
    longest: tuple[LongPause, ...] = ()
    """Up to 20 of 5 ms or more, longest first."""
    long_count: int = 0
    """Pauses of 20 ms or more, of those that were recorded one by one."""
    lost_count: int = 0
    """Collections that were too many to be noted."""

    @property
    def is_possible(self) -> bool:
        """Whether all its numbers are possible ones."""
        times = [self.pause_ratio, self.pause_ms_per_step or 0.0]
        times += [t for g in self.generations for t in (g.total_s, g.longest_s)]
        return all(map(possible, times)) and self.pause_ratio <= 1 and all(g.count >= 0 for g in self.generations)


class MemoryGrowth(msgspec.Struct, kw_only=True, frozen=True):
    """Whether memory keeps growing: Theil and Sen's slope, and Mann and Kendall's test against "no trend"."""

    of: str
    """``process``, ``workers``; ``_pss`` after it where shared pages are divided, ``_private`` without those of files
    and of shared memory."""
    slope_bytes_per_s: float
    slope_bytes_per_step: float | None
    """The same by steps; None without steps."""
    first_bytes: float
    """Median of the first tenth of the samples."""
    last_bytes: float
    """Median of the last tenth."""
    p_value: float
    """Chance of such a trend without growth (Mann, Kendall)."""
    samples: int
    late_slope_bytes_per_s: float | None = None
    """The same slope over the later half of the time; None if it has fewer than ten samples."""
    levels_ratio: float | None = None
    """Squares that the best four flat levels leave, over those of a straight line: near 0 if it grows in jumps, about 1
    if evenly. None below 20 samples."""

    @property
    def latest_bytes_per_s(self) -> float:
        """Slope of the later half where it is known."""
        return self.slope_bytes_per_s if self.late_slope_bytes_per_s is None else self.late_slope_bytes_per_s


class Reading(msgspec.Struct, kw_only=True, frozen=True):
    """What was read in a part of the run, by this process and its workers together."""

    epochs: int
    """How many epochs it is about."""
    seconds: float
    disk_bytes: float | None
    call_bytes: float | None
    """By read calls: from disks, the page cache, pipes and sockets."""


MAJOR_FAULTS_PER_S = 10.0
"""From which pages of a run that come from a disk matter. Heuristic: one takes 0.1 ms (SSD) to 10 ms."""


class HostUse(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that was sampled of the host during the steps."""

    samples: int = 0
    """Of this process, during the steps."""
    usable_cpus: float | None = None
    """CPUs that this rank may use: affinity and quota, divided by the ranks on this host."""
    process: ProcessUse | None = None
    """The main process, without its children."""
    threads: tuple[ThreadUse, ...] = ()
    workers: ProcessUse | None = None
    """DataLoader workers together; None: there were none, or they are not known."""
    worker_rows: tuple[WorkerUse, ...] = ()
    """Each DataLoader worker by itself."""
    children: ProcessUse | None = None
    """Other processes below this one; None: there were none, or they are not known."""
    machine: MachineUse | None = None
    pressure: tuple[PressureUse, ...] = ()
    cgroup: GroupUse | None = None
    gc: GcUse | None = None
    growth: tuple[MemoryGrowth, ...] = ()
    first_epoch: Reading | None = None
    later_epochs: Reading | None = None

    @property
    def others_cpus(self) -> float | None:
        """CPUs of this run that other processes used, on average; None: not known."""
        others = self.machine.cpu_others_cpus if self.machine is not None else None
        return others.mean if others is not None and possible(others.mean) else None

    @property
    def memory_left_bytes(self) -> float | None:
        """What is left of the machine's memory or of the control group's limit, whichever is less; None: not known."""
        left = [self.machine.memory_available_min_bytes] if self.machine is not None else []
        group = self.cgroup
        if group is not None and group.memory_limit_bytes is not None and group.memory_working_bytes is not None:
            left.append(group.memory_limit_bytes - group.memory_working_bytes.max)
        return min((x for x in left if x is not None and possible(x)), default=None)

    @property
    def major_faults_per_s(self) -> float:
        """Of the main process and its workers, as far as that is known."""
        found = [use.major_faults_per_s for use in (self.process, self.workers) if use is not None]
        return sum(value for value in found if value is not None and possible(value))

    @property
    def is_swapped(self) -> bool:
        """Whether memory was read back from swap while this run had major faults: it may have waited for its own."""
        swapping = self.machine.swapping_samples if self.machine is not None else None
        return bool(swapping) and self.major_faults_per_s >= MAJOR_FAULTS_PER_S

    @property
    def memory_stall_ratio(self) -> float | None:
        """Share of the time in which all tasks of the own control group waited for memory; None: not known."""
        own = [row.full_ratio for row in self.pressure if row.scope == "cgroup" and row.resource == "memory"]
        return next((one.mean for one in own if one is not None and possible(one.mean)), None)

    @property
    def held_by_worker_bytes(self) -> float | None:
        """What the typical worker holds for itself; None: not known."""
        own = [row.use.uss_bytes.mean for row in self.worker_rows if row.use.uss_bytes is not None]
        return median(own) if own and all(map(possible, own)) else None

    @property
    def cacheable_bytes(self) -> float | None:
        """Memory that files could be kept in, of the machine or within the limit of the group; None: not known."""
        free = self.machine.memory_available_bytes if self.machine is not None else None
        limit = self.cgroup.memory_limit_bytes if self.cgroup is not None else None
        return min((x for x in (None if free is None else free.mean, limit) if x is not None), default=None)
