"""The host's tables and at most two lines for the terminal."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, FIGURE, NAME, PERCENT, SECONDS, SIGNIFICANT, SIZE, Column, Table

NOT_MEASURED = "Host: not measured."

NOTABLE_RATIO = 0.05
"""Shares of the time from here on are worth a word on the terminal: waiting for a CPU, pressure, throttling."""
_NOTABLE_GC_RATIO = 0.01
_NOTABLE_SHM_RATIO = 0.8
_NOTABLE_STEAL_CPUS = 0.1
_GROWTH_P = 0.01


def lines(report: Report) -> list[str]:
    """What matters, in at most two lines: CPU and memory; and what held the run back, if anything did."""
    host = report.host
    return [line for line in (_usual(host), _unusual(host)) if line]


def _usual(host: HostUse) -> str:
    parts = []
    cpus = [
        f"{what} {level.mean:.2f}"
        for what, level in (
            ("this process", host.process.cpu_cpus if host.process else None),
            (_workers(host), host.workers.cpu_cpus if host.workers else None),
            ("other children", host.children.cpu_cpus if host.children else None),
            ("other ranks", host.machine.cpu_ranks_cpus if host.machine else None),
            ("other programs", host.machine.cpu_others_cpus if host.machine else None),
        )
        if level is not None
    ]
    if cpus:
        ranks = host.machine is not None and host.machine.cpu_ranks_cpus is not None
        of = "" if host.usable_cpus is None else f" (of {host.usable_cpus:.3g}{' for each rank' if ranks else ''})"
        parts.append(f"CPUs in use{of}: {', '.join(cpus)}")
    rss = [
        f"{what} {numbers.size(use.rss_bytes.max)}"
        for what, use in (("this process", host.process), ("workers", host.workers), ("other children", host.children))
        if use is not None and use.rss_bytes is not None
    ]
    if rss:
        parts.append(f"peak memory: {', '.join(rss)}")
    if host.machine is not None and host.machine.memory_available_min_bytes is not None:
        parts.append(f"at least {numbers.size(host.machine.memory_available_min_bytes)} available")
    return " · ".join(parts)


def _workers(host: HostUse) -> str:
    return numbers.counted(len(host.worker_rows), "worker") if host.worker_rows else "workers"


def _unusual(host: HostUse) -> str:
    found = []
    delay = host.process.run_delay_ratio if host.process else None
    if delay is not None and delay.mean >= NOTABLE_RATIO:
        found.append(f"main thread waited for a CPU {numbers.exact_percent(delay.mean)} of the time")
    found += _machine_troubles(host.machine)
    for row in host.pressure:
        level = row.some_ratio
        if (
            level is not None
            and level.mean >= NOTABLE_RATIO
            and (row.scope == "machine" or not _same(host, row.resource))
        ):
            found.append(
                f"{plain.name(numbers.label(row.resource))} pressure of the {plain.name(row.scope)} "
                f"{numbers.exact_percent(level.mean)}"
            )
    group = host.cgroup
    if group is not None:
        if group.throttled_ratio is not None and group.throttled_ratio >= NOTABLE_RATIO:
            found.append(f"CPU quota used up in {numbers.exact_percent(group.throttled_ratio)} of its periods")
        if group.oom_kill_count:
            found.append(f"{numbers.significant(group.oom_kill_count)} processes killed because memory ran out")
    if host.gc is not None and host.gc.pause_ratio >= _NOTABLE_GC_RATIO:
        longest = numbers.seconds(host.gc.longest_s)
        found.append(f"garbage collector {numbers.exact_percent(host.gc.pause_ratio)} of the time (longest {longest})")
    return " · ".join(found)


def _machine_troubles(machine: MachineUse | None) -> list[str]:
    if machine is None:
        return []
    found = []
    if machine.cpu_steal_cpus is not None and machine.cpu_steal_cpus.mean >= _NOTABLE_STEAL_CPUS:
        found.append(f"hypervisor took {numbers.significant(machine.cpu_steal_cpus.mean)} CPUs")
    if machine.swapping_samples:
        rates = (
            numbers.size(level.max) for level in (machine.swap_in_bytes_per_s, machine.swap_out_bytes_per_s) if level
        )
        found.append(f"swapping: at most {' in, '.join(rates)} out per second")
    if machine.shm_used_ratio is not None and machine.shm_used_ratio.max >= _NOTABLE_SHM_RATIO:
        found.append(f"/dev/shm {numbers.exact_percent(machine.shm_used_ratio.max)} full")
    return found


def _same(host: HostUse, resource: str) -> bool:
    """Whether the machine's own pressure of a resource is shown already."""
    return any(
        row.scope == "machine" and row.resource == resource and row.some_ratio and row.some_ratio.mean >= NOTABLE_RATIO
        for row in host.pressure
    )


# Tables -------------------------------------------------------------------------------------------------------------


def tables_of(report: Report) -> tuple[Table, ...]:
    """All tables of the host; the first one says so if nothing was measured."""
    host = report.host
    return (
        process_table(host),
        thread_table(host),
        machine_table(host),
        pressure_table(host),
        group_table(host),
        gc_table(host),
        pause_table(host),
        growth_table(host),
        reading_table(host),
    )


def process_table(host: HostUse) -> Table:
    """This process, its workers one by one and together, and other children."""
    uses = (
        ("this process", host.process),
        ("workers together", host.workers),
        *((f"worker {row.number}", row.use) for row in host.worker_rows),
        ("other children", host.children),
    )
    cpus, per_s = SIGNIFICANT.in_unit("CPUs"), SIGNIFICANT.in_unit("per s")
    return Table.of(
        "Host",
        [(who, use) for who, use in uses if use is not None],
        Column("process", lambda row: row[0]),
        Column("CPUs", lambda row: _mean(row[1].cpu_cpus), SIGNIFICANT, help="CPU seconds per second: 1 is a full CPU"),
        Column("max", lambda row: _max(row[1].cpu_cpus), cpus),
        Column("user", lambda row: row[1].cpu_user_cpus, cpus),
        Column("system", lambda row: row[1].cpu_system_cpus, cpus),
        Column(
            "waiting for CPU",
            lambda row: _mean(row[1].run_delay_ratio),
            PERCENT,
            help="share of the time in which the main thread was ready to run but had no CPU",
        ),
        Column(
            "sleeping",
            lambda row: row[1].waiting_ratio,
            PERCENT,
            help="neither running nor ready to run: waiting for work, a disk or a lock",
        ),
        Column(
            "in disk wait",
            lambda row: row[1].disk_sleep_ratio,
            PERCENT,
            help="share of the samples that found it in state D",
        ),
        Column(
            "memory",
            lambda row: _max(row[1].rss_bytes),
            SIZE,
            help="resident, peak; shared pages count in each process",
        ),
        Column("PSS", lambda row: _max(row[1].pss_bytes), SIZE, help="resident with shared pages divided, peak"),
        Column("from disk", lambda row: _mean(row[1].read_bytes_per_s), SIZE.in_unit("per s"), help="mean"),
        Column("read calls", lambda row: _mean(row[1].read_call_bytes_per_s), SIZE.in_unit("per s"), help=_READ_CALLS),
        Column("major faults", lambda row: row[1].major_faults_per_s, per_s, help="pages read from disk"),
        Column(
            "waits",
            lambda row: row[1].voluntary_switches_per_s,
            per_s,
            help="voluntary context switches of the main thread, which has to wait",
        ),
        Column(
            "preempted",
            lambda row: row[1].involuntary_switches_per_s,
            per_s,
            help="involuntary context switches of the main thread",
        ),
        Column("threads", lambda row: row[1].threads_count, SIGNIFICANT, help="peak"),
        absent=NOT_MEASURED,
    )


_READ_CALLS = "from disks, page cache, pipes and sockets"


def _mean(level: Level | None) -> float | None:
    return level.mean if level else None


def _max(level: Level | None) -> float | None:
    return level.max if level else None


_KIND_TERMS = {
    "main": "the main thread",
    "pin_memory": "copies batches to pinned memory",
    "gpuprof": "this profiler",
    "python": "all others that Python started",
    "autograd": "backward on devices",
    "nccl": "helpers and watchdogs of NCCL",
    "cuda": "threads of the CUDA driver",
    "native": "thread pools of OpenMP, BLAS and other libraries",
}


def thread_table(host: HostUse) -> Table:
    """Threads of the main process by kind."""
    return Table.of(
        "Threads of this process",
        host.threads,
        Column("kind", lambda row: row.kind, NAME, hover=lambda row: _KIND_TERMS.get(row.kind, "")),
        Column("threads", lambda row: row.threads_count, SIGNIFICANT, help="peak"),
        Column("CPUs", lambda row: row.cpu_cpus, SIGNIFICANT, help="together, mean"),
        Column(
            "waiting for CPU",
            lambda row: row.run_delay_ratio,
            PERCENT,
            help="share of the time ready to run but without a CPU, mean",
        ),
        absent="Threads: not measured.",
    )


def machine_table(host: HostUse) -> Table:
    """The machine as all of its processes use it."""
    machine = host.machine or MachineUse()
    levels: tuple[tuple[str, str, Level | None], ...] = (
        ("utilization of the usable CPUs", "_ratio", machine.cpu_busy_ratio),
        ("CPUs used by other ranks", "_cpus", machine.cpu_ranks_cpus),
        ("CPUs used by other processes", "_cpus", machine.cpu_others_cpus),
        ("CPUs taken by the hypervisor", "_cpus", machine.cpu_steal_cpus),
        ("load, 1 minute", "", machine.load),
        ("memory available", "_bytes", machine.memory_available_bytes),
        ("swap used", "_bytes", machine.swap_used_bytes),
        ("swapped in", "_bytes_per_s", machine.swap_in_bytes_per_s),
        ("swapped out", "_bytes_per_s", machine.swap_out_bytes_per_s),
        ("network received", "_bytes_per_s", machine.network_received_bytes_per_s),
        ("network sent", "_bytes_per_s", machine.network_sent_bytes_per_s),
        ("/dev/shm used", "_ratio", machine.shm_used_ratio),
    )
    single: tuple[tuple[str, str, float | None], ...] = (
        ("usable CPUs", "_cpus", host.usable_cpus),
        ("CPU time in programs", "_ratio", machine.cpu_user_ratio),
        ("CPU time in the kernel", "_ratio", machine.cpu_system_ratio),
        ("CPU time idle, waiting for a disk", "_ratio", machine.cpu_io_wait_ratio),
        ("memory", "_bytes", machine.memory_total_bytes),
        ("least memory available", "_bytes", machine.memory_available_min_bytes),
        ("size of /dev/shm", "_bytes", machine.shm_size_bytes),
    )
    return _levels_table("Machine", levels, single if host.machine else ())


def group_table(host: HostUse) -> Table:
    """A container's limits."""
    group = host.cgroup
    if group is None:
        return _levels_table("Control group", (), ())
    return _levels_table(
        "Control group",
        (
            ("memory used, with cached files", "_bytes", group.memory_used_bytes),
            ("memory in use", "_bytes", group.memory_working_bytes),
            ("share of the memory limit", "_ratio", group.memory_used_ratio),
        ),
        (
            ("CPU quota", "_cpus", group.quota_cpus),
            ("memory limit", "_bytes", group.memory_limit_bytes),
            ("periods of the CPU quota", "", group.periods_count),
            ("periods with the quota used up", "_ratio", group.throttled_ratio),
            ("CPU time lost to the quota", "_cpus", group.throttled_cpus),
            ("slowdowns at memory.high", "", group.memory_high_count),
            ("hits of the memory limit", "", group.memory_max_count),
            ("processes killed by the OOM killer", "", group.oom_kill_count),
        ),
    )


def _levels_table(
    title: str, levels: tuple[tuple[str, str, Level | None], ...], single: tuple[tuple[str, str, float | None], ...]
) -> Table:
    """Values that are known; the unit is that of a field whose name ends so."""
    rows: list[tuple[str, str, float, float | None]] = [
        (what, unit, value, None) for what, unit, value in single if value is not None
    ]
    rows += [(what, unit, level.mean, level.max) for what, unit, level in levels if level is not None]
    return Table.of(
        title,
        rows,
        Column("what", lambda row: row[0]),
        Column("mean", lambda row: numbers.quantity(row[1], row[2]), FIGURE),
        Column("max", lambda row: "" if row[3] is None else numbers.quantity(row[1], row[3]), FIGURE),
        absent=f"{title}: not measured.",
    )


def pressure_table(host: HostUse) -> Table:
    """Pressure stall information."""
    some, full = "at least one task waited", "all tasks waited at once"
    share = "share of the time in which {}; mean"
    return Table.of(
        "Pressure",
        host.pressure,
        Column("of", lambda row: row.scope, NAME),
        Column("resource", lambda row: row.resource, NAME),
        Column("some", lambda row: _mean(row.some_ratio), PERCENT, help=share.format(some)),
        Column("max of some", lambda row: _max(row.some_ratio), PERCENT),
        Column("full", lambda row: _mean(row.full_ratio), PERCENT, help=share.format(full)),
        Column("max of full", lambda row: _max(row.full_ratio), PERCENT),
        absent="Pressure: not measured.",
    )


def gc_table(host: HostUse) -> Table:
    """Collections by generation."""
    gc = host.gc
    rows: list[tuple[str, int, float, float, float | None]] = []
    if gc is not None:
        rows = [(f"generation {one.generation}", one.count, one.total_s, one.longest_s, None) for one in gc.generations]
        count, total_s = sum(row[1] for row in rows), sum(row[2] for row in rows)
        rows.append(("all", count + gc.lost_count, total_s, gc.longest_s, gc.pause_ratio))
    return Table.of(
        "Garbage collector pauses",
        rows,
        Column("collections of", lambda row: row[0]),
        Column("count", lambda row: row[1], COUNT),
        Column("total", lambda row: row[2], SECONDS, help="no Python code of this process runs during a pause"),
        Column("longest", lambda row: row[3], SECONDS),
        Column("share", lambda row: row[4], PERCENT, help="of the time during the steps"),
        absent="Garbage collector pauses: not measured.",
    )


def pause_table(host: HostUse) -> Table:
    """The longest pauses of the collector."""
    return Table.of(
        "Longest garbage collector pauses",
        host.gc.longest if host.gc else (),
        Column("batch", lambda row: row.batch, COUNT),
        Column("generation", lambda row: row.generation, FIGURE),
        Column("pause", lambda row: row.pause_s, SECONDS),
        absent="No pause of 5 ms or more.",
    )


def growth_table(host: HostUse) -> Table:
    """Whether memory keeps growing."""
    return Table.of(
        "Growth of memory",
        host.growth,
        Column(
            "of",
            lambda row: row.of.replace("_", " "),
            NAME,
            help="pss: shared pages divided among the processes that share them",
        ),
        Column("per minute", lambda row: row.slope_bytes_per_s * 60, SIZE, help="Theil-Sen slope after warm-up"),
        Column("per step", lambda row: row.slope_bytes_per_step, SIZE),
        Column("start", lambda row: row.first_bytes, SIZE),
        Column("end", lambda row: row.last_bytes, SIZE),
        Column(
            "trend",
            lambda row: "none" if row.p_value >= _GROWTH_P else "rises" if row.slope_bytes_per_s > 0 else "falls",
            help="Mann-Kendall test, p below 0.01",
        ),
        absent="Growth of memory: too few samples.",
    )


def reading_table(host: HostUse) -> Table:
    """What was read in the first epoch and in the later ones."""
    rows = (("the first epoch", host.first_epoch), ("later epochs", host.later_epochs))
    return Table.of(
        "Read by this process and its workers",
        [(when, read) for when, read in rows if read is not None],
        Column("in", lambda row: row[0]),
        Column("from disk", lambda row: row[1].disk_bytes, SIZE),
        Column("by read calls", lambda row: row[1].call_bytes, SIZE, help=_READ_CALLS),
        absent="Bytes read: not measured.",
    )
