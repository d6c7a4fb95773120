"""Builds the parts of Metrics that say what the host does beside the steps."""

from collections.abc import Mapping, Sequence

from metrics_builder import share

from lightning_gpuprof.model.host import (
    GcUse,
    GenerationPauses,
    GroupUse,
    HostUse,
    Level,
    LongPause,
    MachineUse,
    MemoryGrowth,
    PressureUse,
    ProcessUse,
)
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.waiting import InterpreterLock, PythonThread

MIB = 2**20


def growing(
    mib: float = 1024.0,
    *,
    of: str = "process_private",
    first_mib: float = 500.0,
    late: float = 1.0,
    even: float | None = 1.0,
    p_value: float = 1e-9,
    left_gib: float = 20.0,
    limit_gib: float | None = None,
    samples: int = 100,
) -> HostUse:
    """Memory that grows evenly by so much in 100 s and 400 steps; ``late`` is the later half's pace."""

    def row(name: str, grown: float) -> MemoryGrowth:
        return MemoryGrowth(
            of=name,
            slope_bytes_per_s=grown / 100,
            slope_bytes_per_step=grown / 400,
            first_bytes=first_mib * MIB,
            last_bytes=first_mib * MIB + grown,
            p_value=p_value if grown else 0.5,
            samples=samples,
            late_slope_bytes_per_s=late * grown / 100,
            levels_ratio=even,
        )

    rows = {"process_private": 0.0, of: mib * MIB}
    group = None
    if limit_gib is not None:
        used = Level(mean=1.0 * 2**30, max=1.0 * 2**30)
        group = GroupUse(memory_limit_bytes=limit_gib * 2**30, memory_working_bytes=used)
    machine = MachineUse(memory_available_min_bytes=left_gib * 2**30)
    return HostUse(growth=tuple(row(name, grown) for name, grown in rows.items()), machine=machine, cgroup=group)


def collecting(ratio: float, counts: Sequence[int] = (400, 40, 100), *, oldest: float = 0.9) -> HostUse:
    """400 steps of 50 ms of which the collector takes so much, ``oldest`` of it in the oldest generation."""
    total_s = ratio * 20
    parts = (0.7 * (1 - oldest), 0.3 * (1 - oldest), oldest)
    generations = tuple(
        GenerationPauses(generation=i, count=n, total_s=part * total_s, longest_s=2 * part * total_s / max(1, n))
        for i, (n, part) in enumerate(zip(counts, parts, strict=True))
    )
    longest = tuple(LongPause(batch=37 * (i + 1) + i % 3, generation=2, pause_s=0.2) for i in range(8))
    return HostUse(
        gc=GcUse(
            pause_ratio=ratio,
            pause_ms_per_step=ratio * 50,
            longest_s=0.2,
            generations=generations,
            longest=longest,
            long_count=8,
        )
    )


def short_quota(
    ratio: float | None = 0.6,
    held: float | None = 0.5,
    *,
    cpus: float | None = 2.0,
    periods: float = 480.0,
    samples: int = 48,
) -> HostUse:
    """A CPU quota that was used up in this share of its periods, by which so many CPUs were held back."""
    group = GroupUse(quota_cpus=cpus, periods_count=periods, throttled_ratio=ratio, throttled_cpus=held)
    return HostUse(samples=samples, cgroup=group)


def swapping(
    count: int | None = 24,
    *,
    read: float = 4e6,
    faults: float = 300.0,
    full: float | None = None,
    shm: float | None = 0.1,
    samples: int = 60,
) -> HostUse:
    """A host that read so many bytes a second from swap in ``count`` samples; ``full``: its group stood still."""

    def level(value: float | None) -> Level | None:
        return None if value is None else Level(mean=value, max=value)

    machine = MachineUse(
        swapping_samples=count,
        swap_in_bytes_per_s=level(read),
        shm_used_ratio=level(shm),
        shm_size_bytes=64e6,
        memory_available_min_bytes=2e8,
    )
    pressure = () if full is None else (PressureUse(scope="cgroup", resource="memory", full_ratio=level(full)),)
    process = ProcessUse(major_faults_per_s=faults)
    return HostUse(samples=samples, machine=machine, process=process, pressure=pressure)


def beside_thread(
    waited_ms: float = 30.0,
    *,
    cpus: float = 0.8,
    late: int = 60,
    asked: int = 100,
    samples: int = 40,
    by_phase: Mapping[Phase, tuple[int, int]] | None = None,
) -> InterpreterLock:
    """Steps of 50 ms that wait so long beside a thread that uses so many CPUs."""
    return InterpreterLock(
        asked=asked,
        late=late,
        by_phase=by_phase or {"forward": (asked, late)},
        waited=share(waited_ms, 50.0),
        samples=samples,
        threads=(
            PythonThread(name="metrics", cpus=cpus, sites=(("train.py:21 count", 40),)),
            PythonThread(name="idle", cpus=0.01),
        ),
    )
