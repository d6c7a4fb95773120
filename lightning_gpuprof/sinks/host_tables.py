"""The host's part of a Report flows in, tables and at most two lines for the terminal flow out."""

from __future__ import annotations

from lightning_gpuprof.model.host import GcUse, HostUse, Level, MachineUse, ProcessUse
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.tables import Cell, Column, Table

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
        f"{what} {numbers.significant(level.mean)}"
        for what, level in (
            ("this process", host.process.cpu_cpus if host.process else None),
            (_workers(host), host.workers.cpu_cpus if host.workers else None),
            ("other children", host.children.cpu_cpus if host.children else None),
            ("other ranks", host.machine.cpu_ranks_cpus if host.machine else None),
            ("others", host.machine.cpu_others_cpus if host.machine else None),
        )
        if level is not None
    ]
    if cpus:
        of = "" if host.usable_cpus is None else f" of {numbers.significant(host.usable_cpus)} usable"
        parts.append(f"CPUs busy: {', '.join(cpus)}{of}")
    rss = [
        f"{what} {numbers.size(use.rss_bytes.max)}"
        for what, use in (("this process", host.process), ("workers", host.workers), ("other children", host.children))
        if use is not None and use.rss_bytes is not None
    ]
    if rss:
        parts.append(f"memory at most: {', '.join(rss)}")
    if host.machine is not None and host.machine.memory_available_min_bytes is not None:
        parts.append(f"available at least {numbers.size(host.machine.memory_available_min_bytes)}")
    return " · ".join(parts)


def _workers(host: HostUse) -> str:
    count = len(host.worker_rows)
    return "workers" if not count else f"{count} worker{'s' if count > 1 else ''}"


def _unusual(host: HostUse) -> str:
    found = []
    delay = host.process.run_delay_ratio if host.process else None
    if delay is not None and delay.mean >= NOTABLE_RATIO:
        found.append(f"training thread waited for a CPU {numbers.percent(delay.mean)} of the time")
    found += _machine_troubles(host.machine)
    for row in host.pressure:
        level = row.some_ratio
        if (
            level is not None
            and level.mean >= NOTABLE_RATIO
            and (row.scope == "machine" or not _same(host, row.resource))
        ):
            found.append(
                f"{plain.name(row.resource)} pressure of the {plain.name(row.scope)} {numbers.percent(level.mean)}"
            )
    group = host.cgroup
    if group is not None:
        if group.throttled_ratio is not None and group.throttled_ratio >= NOTABLE_RATIO:
            found.append(f"CPU quota used up in {numbers.percent(group.throttled_ratio)} of its periods")
        if group.oom_kill_count:
            found.append(f"{numbers.significant(group.oom_kill_count)} processes killed for lack of memory")
    if host.gc is not None and host.gc.pause_ratio >= _NOTABLE_GC_RATIO:
        longest = numbers.seconds(host.gc.longest_s)
        found.append(f"garbage collector {numbers.percent(host.gc.pause_ratio)} of the time (longest {longest})")
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
        found.append(f"/dev/shm {numbers.percent(machine.shm_used_ratio.max)} full")
    return found


def _same(host: HostUse, resource: str) -> bool:
    """Whether the machine's own pressure of a resource is told already."""
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
    uses: list[tuple[str, ProcessUse | None]] = [
        ("this process", host.process),
        ("workers together", host.workers),
        *((f"worker {row.number}", row.use) for row in host.worker_rows),
        ("other children", host.children),
    ]
    columns = (
        Column(title="process"),
        Column(title="CPUs", term="CPU seconds per second; 1 is one full CPU", numeric=True),
        Column(title="most", unit="CPUs", term="largest of the samples", numeric=True),
        Column(title="user", unit="CPUs", numeric=True),
        Column(title="system", unit="CPUs", numeric=True),
        Column(title="ready", term="main thread was ready to run but had no CPU", numeric=True),
        Column(title="waiting", term="neither on a CPU nor waiting for one: for work, a disk or a lock", numeric=True),
        Column(title="in disk wait", term="share of the samples that found it in state D", numeric=True),
        Column(title="memory", term="resident, most; pages that processes share count in each", numeric=True),
        Column(title="PSS", term="resident with shared pages divided, most", numeric=True),
        Column(title="from disk", unit="per s", term="mean", numeric=True),
        Column(title="read calls", unit="per s", term="from disks, page cache, pipes, sockets; mean", numeric=True),
        Column(title="major faults", unit="per s", term="pages read from disk", numeric=True),
        Column(title="forced off", unit="per s", term="involuntary context switches of the main thread", numeric=True),
        Column(title="threads", term="most at a time", numeric=True),
    )
    rows = tuple((Cell(text=name), *_process_cells(use)) for name, use in uses if use is not None)
    return Table(title="Host", columns=columns, rows=rows, absent=NOT_MEASURED)


def _process_cells(use: ProcessUse) -> tuple[Cell, ...]:
    texts = (
        _mean(use.cpu_cpus),
        _max(use.cpu_cpus),
        numbers.significant(use.cpu_user_cpus),
        numbers.significant(use.cpu_system_cpus),
        numbers.percent(use.run_delay_ratio.mean if use.run_delay_ratio else None),
        numbers.percent(use.waiting_ratio),
        numbers.percent(use.disk_sleep_ratio),
        numbers.size(use.rss_bytes.max if use.rss_bytes else None),
        numbers.size(use.pss_bytes.max if use.pss_bytes else None),
        numbers.size(use.read_bytes_per_s.mean if use.read_bytes_per_s else None),
        numbers.size(use.read_call_bytes_per_s.mean if use.read_call_bytes_per_s else None),
        numbers.significant(use.major_faults_per_s),
        numbers.significant(use.involuntary_switches_per_s),
        numbers.significant(use.threads_count),
    )
    return tuple(Cell(text=text) for text in texts)


def _mean(level: Level | None) -> str:
    return numbers.significant(level.mean if level else None)


def _max(level: Level | None) -> str:
    return numbers.significant(level.max if level else None)


_KIND_TERMS = {
    "main": "the training thread",
    "pin_memory": "copies batches to pinned memory",
    "gpuprof": "this profiler's own",
    "python": "all others that Python started",
    "autograd": "backward on devices",
    "nccl": "NCCL's helpers and watchdogs",
    "cuda": "the CUDA driver's",
    "native": "pools of OMP, BLAS and other libraries",
}


def thread_table(host: HostUse) -> Table:
    """Threads of the training process by kind."""
    return Table(
        title="Threads of this process",
        columns=(
            Column(title="kind"),
            Column(title="threads", term="most at a time", numeric=True),
            Column(title="CPUs", term="together, mean", numeric=True),
            Column(title="ready", term="share of the time without a CPU though ready to run, mean", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(row.kind), term=_KIND_TERMS.get(row.kind, "")),
                Cell(text=numbers.significant(row.threads_count)),
                Cell(text=numbers.significant(row.cpu_cpus)),
                Cell(text=numbers.percent(row.run_delay_ratio)),
            )
            for row in host.threads
        ),
        absent="Threads: not measured.",
    )


def machine_table(host: HostUse) -> Table:
    """The machine as all of its processes use it."""
    machine = host.machine or MachineUse()
    levels: tuple[tuple[str, str, Level | None], ...] = (
        ("busy share of the CPUs that we may use", "_ratio", machine.cpu_busy_ratio),
        ("other ranks' work on them", "_cpus", machine.cpu_ranks_cpus),
        ("others' work on them", "_cpus", machine.cpu_others_cpus),
        ("taken by the hypervisor", "_cpus", machine.cpu_steal_cpus),
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
        ("CPUs that we may use", "_cpus", host.usable_cpus),
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
            ("periods of the quota", "", group.periods_count),
            ("of them with the quota used up", "_ratio", group.throttled_ratio),
            ("held back", "_cpus", group.throttled_cpus),
            ("slowed down at memory.high", "", group.memory_high_count),
            ("met the memory limit", "", group.memory_max_count),
            ("processes killed for lack of memory", "", group.oom_kill_count),
        ),
    )


def _levels_table(
    title: str,
    levels: tuple[tuple[str, str, Level | None], ...],
    single: tuple[tuple[str, str, float | None], ...],
) -> Table:
    """Values that are known; the unit is that of a field whose name ends so."""
    rows = [
        (Cell(text=what), Cell(text=numbers.quantity(unit, value)), Cell(text=""))
        for what, unit, value in single
        if value is not None
    ]
    rows += [
        (Cell(text=what), Cell(text=numbers.quantity(unit, level.mean)), Cell(text=numbers.quantity(unit, level.max)))
        for what, unit, level in levels
        if level is not None
    ]
    return Table(
        title=title,
        columns=(Column(title="what"), Column(title="mean", numeric=True), Column(title="most", numeric=True)),
        rows=tuple(rows),
        absent=f"{title}: not measured.",
    )


def pressure_table(host: HostUse) -> Table:
    """Pressure stall information."""
    some, full = "at least one task waited", "all tasks waited at once"
    return Table(
        title="Pressure",
        columns=(
            Column(title="of"),
            Column(title="resource"),
            Column(title="some", term=f"share of the time in which {some}; mean", numeric=True),
            Column(title="most", numeric=True),
            Column(title="full", term=f"share of the time in which {full}; mean", numeric=True),
            Column(title="most", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(row.scope)),
                Cell(text=plain.name(row.resource)),
                *(
                    Cell(text=numbers.percent(value))
                    for level in (row.some_ratio, row.full_ratio)
                    for value in ((level.mean, level.max) if level else (None, None))
                ),
            )
            for row in host.pressure
        ),
        absent="Pressure: not measured.",
    )


def gc_table(host: HostUse) -> Table:
    """Collections by generation."""
    gc = host.gc
    rows: list[tuple[Cell, ...]] = []
    if gc is not None:
        for row in gc.generations:
            texts = (
                f"generation {row.generation}",
                numbers.count(row.count),
                numbers.seconds(row.total_s),
                numbers.seconds(row.longest_s),
                "",
            )
            rows.append(tuple(Cell(text=text) for text in texts))
        rows.append(_all_collections(gc))
    return Table(
        title="Pauses of the garbage collector",
        columns=(
            Column(title="collections of"),
            Column(title="times", numeric=True),
            Column(title="total", term="no Python code of this process ran meanwhile", numeric=True),
            Column(title="longest", numeric=True),
            Column(title="share", term="of the time during the steps", numeric=True),
        ),
        rows=tuple(rows),
        absent="Pauses of the garbage collector: not measured.",
    )


def _all_collections(gc: GcUse) -> tuple[Cell, ...]:
    texts = (
        "all",
        numbers.count(sum(row.count for row in gc.generations) + gc.lost_count),
        numbers.seconds(sum(row.total_s for row in gc.generations)),
        numbers.seconds(gc.longest_s),
        numbers.percent(gc.pause_ratio),
    )
    return tuple(Cell(text=text) for text in texts)


def pause_table(host: HostUse) -> Table:
    """The longest pauses of the collector."""
    return Table(
        title="Longest pauses of the garbage collector",
        columns=(
            Column(title="batch", numeric=True),
            Column(title="generation", numeric=True),
            Column(title="pause", numeric=True),
        ),
        rows=tuple(
            (
                Cell(text=numbers.ABSENT if row.batch is None else numbers.count(row.batch)),
                Cell(text=str(row.generation)),
                Cell(text=numbers.seconds(row.pause_s)),
            )
            for row in (host.gc.longest if host.gc else ())
        ),
        absent="No pause of 5 ms or more.",
    )


def growth_table(host: HostUse) -> Table:
    """Whether memory keeps growing."""
    return Table(
        title="Growth of memory",
        columns=(
            Column(title="of", term="pss: shared pages divided among those who share them"),
            Column(title="per minute", term="Theil and Sen's slope after warm-up", numeric=True),
            Column(title="per step", numeric=True),
            Column(title="at first", numeric=True),
            Column(title="at last", numeric=True),
            Column(title="trend", term="by Mann and Kendall's test, p below 0.01"),
        ),
        rows=tuple(
            (
                Cell(text=plain.name(row.of.replace("_", " "))),
                Cell(text=numbers.size(row.slope_bytes_per_s * 60)),
                Cell(text=numbers.size(row.slope_bytes_per_step)),
                Cell(text=numbers.size(row.first_bytes)),
                Cell(text=numbers.size(row.last_bytes)),
                Cell(text="none" if row.p_value >= _GROWTH_P else "rises" if row.slope_bytes_per_s > 0 else "falls"),
            )
            for row in host.growth
        ),
        absent="Growth of memory: too few samples to tell.",
    )


def reading_table(host: HostUse) -> Table:
    """What was read in the first epoch and in the later ones."""
    return Table(
        title="Read by this process and its workers",
        columns=(
            Column(title="in"),
            Column(title="from disk", numeric=True),
            Column(title="by read calls", term="from disks, page cache, pipes and sockets", numeric=True),
        ),
        rows=tuple(
            (Cell(text=what), Cell(text=numbers.size(row.disk_bytes)), Cell(text=numbers.size(row.call_bytes)))
            for what, row in (("the first epoch", host.first_epoch), ("later epochs", host.later_epochs))
            if row is not None
        ),
        absent="Bytes read: not measured.",
    )
