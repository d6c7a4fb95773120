"""Reports for tests: one with everything in it, one of a run in which nothing could be measured."""

import itertools
import math
import random

import msgspec
from empty_structs import empty

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.curves import Curve, Mark, MarkKind, Marks, RankRow, Ranks
from lightning_gpuprof.model.device import DeviceBusy, DeviceEnergy, DeviceFacts, ErrorCounter, ThrottleShare
from lightning_gpuprof.model.finding import Evidence, Finding, Gain, NotEvaluated, Verdict, speedup
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
    Reading,
    ThreadUse,
    WorkerUse,
)
from lightning_gpuprof.model.memory import (
    MEMORY_PHASES,
    DeviceMemory,
    Growth,
    Held,
    Memory,
    MemoryHistory,
    OutOfMemory,
    PhaseMemory,
    SourceHolder,
)
from lightning_gpuprof.model.phases import PHASES, Part, Phase
from lightning_gpuprof.model.report import (
    CallbackRow,
    Device,
    Distribution,
    LedgerRow,
    PhaseRow,
    Report,
    SpeedLevel,
    Steps,
    Validity,
    Wall,
)
from lightning_gpuprof.model.trial import AROUND, INPUT, Arm, NotTried, Trial, Tried
from lightning_gpuprof.model.window import DeviceActivity, OperatorRow, WindowFacts

HOSTILE = "<script>alert(1)</script>\"'`|*_[x](http://evil.example)</td>\x1b[31m\x07\n\u202egnp.exe\u2028"
"""A name that tries to leave every format."""

MEDIANS_MS: dict[Phase, float] = {
    "data_wait": 11.8,
    "h2d": 0.31,
    "forward": 4.2,
    "backward": 7.9,
    "optimizer": 1.3,
    "zero_grad": 0.12,
    "callbacks": 0.9,
    "logging": 0.4,
    "validation": 0.0,
    "checkpoint": 0.0,
    "loop": 0.27,
}


def distribution(median: float, spread: float = 0.1) -> Distribution:
    """A bell around a median; ``spread`` is the standard deviation as a share of it."""
    return Distribution(
        mean=median * 1.02,
        std=median * spread,
        median=median,
        p05=median * (1 - 1.6 * spread),
        p95=median * (1 + 1.6 * spread),
        p99=median * (1 + 2.3 * spread),
        min=median * max(0.0, 1 - 3 * spread),
        max=median * (1 + 5 * spread),
    )


def series(steps: int = 400, seed: int = 7) -> dict[str, list[float]]:
    """Curves of a run with outliers and validation every 100 steps; phases sum to the period."""
    rng = random.Random(seed)
    curves: dict[str, list[float]] = {"batch": [float(i) for i in range(steps)]}
    columns: dict[str, list[float]] = {}
    for phase, median in MEDIANS_MS.items():
        columns[phase] = [median * rng.lognormvariate(0, 0.08) for _ in range(steps)]
    for i in range(steps):
        if i % 100 == 99:
            columns["validation"][i] = 60.0
        if i % 57 == 56:
            columns["data_wait"][i] *= 4
    curves["period_ms"] = [math.fsum(column[i] for column in columns.values()) for i in range(steps)]
    curves["t_s"] = [0.7 + before / 1e3 for before in itertools.accumulate([0.0, *curves["period_ms"][:-1]])]
    curves.update({f"{phase}_ms": column for phase, column in columns.items()})
    return curves


def _use(cpus: float, rss_bytes: float, count: float | None = None) -> ProcessUse:
    return ProcessUse(
        count=count,
        cpu_cpus=Level(mean=cpus, max=1.5 * cpus),
        cpu_user_cpus=0.9 * cpus,
        cpu_system_cpus=0.1 * cpus,
        run_delay_ratio=Level(mean=0.01, max=0.02),
        rss_bytes=Level(mean=rss_bytes, max=1.1 * rss_bytes),
        read_bytes_per_s=Level(mean=2e6, max=5e6),
        threads_count=9.0,
    )


HOST = HostUse(
    samples=60,
    usable_cpus=8.0,
    process=_use(1.02, 1.4e9),
    threads=(ThreadUse(kind="main", threads_count=1.0, cpu_cpus=0.9, run_delay_ratio=0.01),),
    workers=_use(1.4, 0.8e9, 2.0),
    worker_rows=tuple(WorkerUse(number=number, samples=60, use=_use(0.7, 0.4e9)) for number in range(2)),
    machine=MachineUse(
        cpu_busy_ratio=Level(mean=0.21, max=0.3),
        cpu_others_cpus=Level(mean=0.3, max=0.5),
        memory_total_bytes=64e9,
        memory_available_bytes=Level(mean=40e9, max=41e9),
        memory_available_min_bytes=39e9,
        swap_in_bytes_per_s=Level(mean=1e6, max=4e6),
        swap_out_bytes_per_s=Level(mean=0.0, max=0.0),
        swapping_samples=3,
    ),
    pressure=(PressureUse(scope="machine", resource="cpu", some_ratio=Level(mean=0.12, max=0.4)),),
    cgroup=GroupUse(quota_cpus=8.0, periods_count=600.0, throttled_count=90.0, throttled_ratio=0.15),
    gc=GcUse(
        pause_ratio=0.031,
        pause_ms_per_step=0.8,
        longest_s=0.052,
        generations=(GenerationPauses(generation=2, count=4, total_s=0.2, longest_s=0.052),),
        longest=(LongPause(batch=17, generation=2, pause_s=0.052),),
        long_count=4,
    ),
    growth=(
        MemoryGrowth(
            of="process",
            slope_bytes_per_s=1e6,
            slope_bytes_per_step=2.7e4,
            first_bytes=1.3e9,
            last_bytes=1.36e9,
            p_value=1e-6,
            samples=60,
        ),
    ),
    first_epoch=Reading(epochs=1, seconds=20.0, disk_bytes=1e9, call_bytes=1.2e9),
    later_epochs=Reading(epochs=2, seconds=40.0, disk_bytes=0.0, call_bytes=2.4e9),
)


def trial() -> Trial:
    """Two settings and both ceilings, tried; one piece of advice that could not be."""
    workers = Arm(
        name="num_workers=4",
        changes=(Change(call="DataLoader", arguments={"num_workers": 4}),),
        rules=("input-bound",),
        promised_speedup=1.77,
    )
    precision = Arm(
        name="precision=bf16-mixed", changes=(Change(call="Trainer", arguments={"precision": "bf16-mixed"}),)
    )
    both = Arm(name=f"{workers.name} + {precision.name}", changes=workers.changes + precision.changes)
    found = {"speedup_lower": 1.68, "speedup_upper": 1.74, "rounds": 6, "steps": 240}
    return Trial(
        command=("python", "train.py"),
        run="runs/1",
        device="NVIDIA H100",
        base_step_ms=27.2,
        tried=(
            Tried(arm=Arm(name=INPUT, ceiling="input"), outcome="faster", step_ms=15.4, speedup=1.77, **found),
            Tried(arm=workers, outcome="faster", step_ms=15.9, speedup=1.71, **found),
            Tried(arm=precision, outcome="faster", step_ms=24.0, speedup=1.13, changes_numbers=True, **found),
            Tried(arm=Arm(name=AROUND, ceiling="around the model"), outcome="no gain", step_ms=27.1, speedup=1.0),
        ),
        together=Tried(arm=both, outcome="faster", step_ms=13.1, speedup=2.08, changes_numbers=True, **found),
        not_tried=(NotTried(rule="blocked-in-step", advice="Take .item() out.", why="your code has to change"),),
        left_out=("ModelCheckpoint", "validation"),
        seconds=58.0,
    )


def full_report(*, name: str = "DigitsClassifier", steps: int = 400) -> Report:
    """A run in which everything was measured and something is wrong."""
    curves = series(steps)
    totals = {phase: math.fsum(curves.get(f"{phase}_ms", [0.0])) / 1e3 for phase in PHASES}
    train_s = math.fsum(totals.values())
    parts = {
        "setup": 0.61,
        "sanity": 0.13,
        "train": train_s - totals["validation"] - totals["checkpoint"],
        "validation": totals["validation"] + 0.2,
        "checkpoint": 0.05,
        "epoch_gap": 0.34,
        "teardown": 0.02,
        "unexplained": 0.01,
    }
    wall = math.fsum(parts.values())
    period = distribution(27.2)
    return Report(
        trial=trial(),
        run={
            "run_id": "20260101-120000-4242",
            "started": "2026-01-01T12:00:00+00:00",
            "status": "finished",
            "world_size": 1,
            "model.class": name,
            "model.parameters": 431_080,
            "device.type": "cuda",
            "trainer.strategy": "SingleDeviceStrategy",
            "trainer.precision": "32-true",
            "loader.batch_size": 64,
            "loader.num_workers": 0,
            "loader.pin_memory": False,
            "version.torch": "2.13.0",
            "version.lightning": "2.6.6",
        },
        validity=Validity(ok=True, caveats=("The run is short: 400 steps.", "No GPM metrics on this GPU.")),
        wall=Wall(total_s=wall, parts=parts),
        steps=Steps(
            count=steps,
            optimizer_steps=steps,
            steady_from=12,
            steady_count=max(steps - 20, 0),
            period_ms=period,
            samples_per_s=64 / (period.median / 1e3),
            period_median_interval_ms=(26.9, 27.5),
            period_mean_interval_ms=(27.4, 28.1),
            samples_per_s_interval=(2310.0, 2390.0),
            labels={"profiled": 5, "warm-up": 12, "first-of-epoch": 3, "steady": max(steps - 20, 0)},
            speed_levels=speed_levels(steps),
        ),
        phases=tuple(
            PhaseRow(
                phase=phase,
                median_ms=MEDIANS_MS.get(phase),
                p95_ms=MEDIANS_MS[phase] * 1.15 if phase in MEDIANS_MS else None,
                p05_ms=MEDIANS_MS[phase] * 0.9 if phase in MEDIANS_MS else None,
                total_s=totals[phase],
                share=totals[phase] / train_s,
                cpu_ms=MEDIANS_MS[phase] * 0.6 if phase in MEDIANS_MS else None,
                device_ms=MEDIANS_MS[phase] * 0.7 if phase in ("forward", "backward") else None,
            )
            for phase in PHASES
        ),
        callbacks=(
            CallbackRow(name="SlowImageLogger", hook="on_train_batch_end", total_s=0.33, share=0.33 / wall),
            CallbackRow(name="ModelCheckpoint", hook="on_validation_end", total_s=0.05, share=0.05 / wall),
            CallbackRow(name="TQDMProgressBar", hook="on_train_batch_end", total_s=0.02, share=0.02 / wall),
        ),
        devices=(
            Device(
                name="NVIDIA H100 80GB HBM3",
                uuid="GPU-5a1b2c3d-0000-1111-2222-333344445555",
                samples=44,
                values={
                    "utilization_ratio": distribution(0.41),
                    "memory_used_bytes": distribution(3.2e9, 0.01),
                    "power_w": distribution(182.0),
                    "temperature_c": distribution(41.0),
                    "sm_clock_mhz": distribution(1980.0, 0.01),
                    "fan_ratio": None,
                    "performance_state": None,
                },
                subject="gpu0",
                facts=DeviceFacts(
                    memory_total_bytes=80e9, sm_clock_max_mhz=1980.0, power_limit_default_w=700.0, ecc=True
                ),
                distinct_samples=21,
                longest_repeat_samples=3,
                throttle=(
                    ThrottleShare(reason="gpu_idle", ratio=0.3, busy_ratio=0.0),
                    ThrottleShare(reason="sw_power_cap", ratio=0.25, busy_ratio=0.4),
                ),
                busy=DeviceBusy(samples=28, sm_clock_median_mhz=1410.0, power_median_w=690.0),
                energy=DeviceEnergy(total_j=2002.0, per_step_j=5.0, mean_w=182.0, covered_ratio=1.0),
                errors=(ErrorCounter(name="ecc_corrected_count", first=2.0, last=4.0),),
            ),
        ),
        host=HOST,
        memory=full_memory(),
        windows=(
            WindowFacts(
                start_step=200,
                stop_step=205,
                file="rank0.1763705000000000000.pt.trace.json.gz",
                events=18_230,
                bytes_json=4_100_000,
                steps_us=(27_900.0, 28_100.0, 27_700.0),
                dataloader_us=35_300.0,
                kernels=1_422,
                launches_matched=1_420,
                launches_unmatched=2,
                devices=(
                    DeviceActivity(
                        device="GPU 0", kernels=1_422, window_us=83_000.0, busy_us=31_000.0, idle_us=52_000.0
                    ),
                ),
                top_operators=(
                    OperatorRow(name="aten::convolution_backward", count=24, total_us=9_100.0),
                    OperatorRow(name="aten::cudnn_convolution", count=24, total_us=4_000.0),
                ),
                top_kernels=(
                    OperatorRow(name="sm90_xmma_fprop_implicit_gemm_f32f32<float, 3>", count=24, total_us=7_700.0),
                ),
                stop_cost_ms=41.0,
                reason="slow step: 31 ms against 12 ms",
                inflation_ratio=1.83,
            ),
            WindowFacts(
                start_step=300, stop_step=302, reason="planned", problem="the user's own PyTorchProfiler was running"
            ),
        ),
        verdict=Verdict(
            kind="input-bound",
            summary="43 % of a step the main thread waits for the next batch; nothing else loads data meanwhile.",
            runner_up="loop-bound: callbacks take 3 % of a step.",
        ),
        findings=(
            Finding(
                rule="single-process-loading",
                severity="critical",
                subject="DataLoader of DigitsFolder",
                summary="The main thread loads every batch itself: it waits 11.8 of 27.2 ms per step.",
                advice="Set num_workers=4 in the training DataLoader (num_workers is 0, 8 CPUs are usable).",
                evidence=(
                    Evidence(name="data_wait share", value=0.434, unit="ratio", limit=0.05, source="torch_tb_profiler"),
                    Evidence(name="num_workers", value=0, limit=1),
                    Evidence(name="dataset", value="DigitsFolder"),
                ),
                gain=Gain(saved_ms_per_step=11.8, speedup_max=speedup(11.8, 27.2)),
                confidence=0.95,
            ),
            Finding(
                rule="callback-slow",
                severity="warning",
                subject="SlowImageLogger",
                summary="SlowImageLogger.on_train_batch_end takes 0.8 ms of every step.",
                advice="Call SlowImageLogger every 50 steps instead of every step.",
                evidence=(Evidence(name="median", value=0.8, unit="ms", limit=0.2, source="rule threshold"),),
                gain=Gain(saved_ms_per_step=0.8, speedup_max=speedup(0.8, 27.2)),
            ),
            Finding(
                rule="step-outliers",
                severity="info",
                subject="",
                summary="7 of 380 steps took more than 1.5 times the median.",
                advice="Look at batches 56, 113, 170 in the figure of the step time.",
                evidence=(Evidence(name="worst step", value=88.1, unit="ms", limit=40.8),),
            ),
        ),
        not_evaluated=(
            NotEvaluated(rule="blocked-in-step", why="main-thread CPU time was not measured"),
            NotEvaluated(rule="worker-startup", why="fewer than 2 epochs"),
            NotEvaluated(rule="epoch-boundary-idle", why="fewer than 2 epochs"),
        ),
        overhead={"per_step_us": 8.2, "journal_bytes": 212_000.0, "share_ratio": 0.0003, "analysis_s": None},
        ledger=ledger(parts, wall),
        series=curves,
        curves=sampled(curves["t_s"][-1], steps),
        marks=marks(curves),
        ranks=ranks(4),
    )


def sampled(end_s: float, steps: int, points: int = 120) -> tuple[Curve, ...]:
    """Curves of a GPU, the allocator, the process, its workers and the machine."""
    rng = random.Random(11)
    values = {
        ("nvml", "gpu0", "utilization_ratio"): (0.55, 0.2),
        ("nvml", "gpu0", "memory_used_bytes"): (5e9, 1e8),
        ("nvml", "gpu0", "power_w"): (310.0, 90.0),
        ("nvml", "gpu0", "temperature_c"): (58.0, 3.0),
        ("nvml", "gpu0", "fan_ratio"): (0.4, 0.02),
        ("nvml", "gpu0", "sm_clock_mhz"): (1700.0, 120.0),
        ("nvml", "gpu0", "memory_clock_mhz"): (2600.0, 1.0),
        ("host", "process", "cpu_cpus"): (1.0, 0.1),
        ("host", "process", "rss_bytes"): (1.4e9, 1e7),
        ("host", "process", "read_bytes_per_s"): (3e6, 2e6),
        ("host", "workers", "cpu_cpus"): (1.4, 0.3),
        ("host", "workers", "rss_bytes"): (0.8e9, 1e7),
        ("host", "host", "cpu_busy_ratio"): (0.3, 0.1),
        ("host", "host", "memory_available_bytes"): (40e9, 5e8),
        ("memory", "gpu0", "allocated_bytes"): (2.2e9, 6e8),
        ("memory", "gpu0", "reserved_bytes"): (4.2e9, 0.0),
    }
    return tuple(
        Curve(
            source=source,
            subject=subject,
            name=name,
            t_s=[end_s * i / points for i in range(points)],
            batch=[steps * i / points for i in range(points)],
            values=[max(0.0, rng.gauss(*around)) for _ in range(points)],
        )
        for (source, subject, name), around in values.items()
    )


def marks(curves: dict[str, list[float]]) -> tuple[Marks, ...]:
    """One kind of everything that can be marked, where the curves have it."""
    steps, period = len(curves["batch"]), curves["period_ms"]

    def at(kind: MarkKind, batches: list[int], ms: list[float] | None = None, width: int = 0) -> Marks:
        lengths: list[float | None] = [None] * len(batches) if ms is None else [*ms]
        found = [Mark(from_batch=b, to_batch=b + width, ms=t) for b, t in zip(batches, lengths, strict=True)]
        return Marks(kind=kind, count=len(found), marks=tuple(found))

    outliers = list(range(56, steps, 57))[:100]
    validations = list(range(99, steps, 100))[:100]
    return (
        at("outlier", outliers, [period[b] for b in outliers]),
        at("window", [200], width=5),
        at("validation", validations, [60.0] * len(validations)),
        at("checkpoint", validations[:2], [50.0] * len(validations[:2])),
        at("epoch", [steps // 2]),
        at("speed level", [steps // 2], [30.0]),
    )


def ranks(number: int, host: str = "node1", *, per_host: int | None = None) -> Ranks:
    """The last rank waits longer for data; the others wait for it in the backward."""
    rows = []
    for rank in range(number):
        late = 6.0 if rank == number - 1 else 0.0
        phases: dict[Phase, float] = {
            "data_wait": 2.0 + late,
            "forward": 4.2,
            "backward": 14.0 - late,
            "optimizer": 1.3,
        }
        at = host if per_host is None else f"node{rank // per_host}"
        rows.append(RankRow(rank=rank, host=at, period_ms=21.5, phases_ms=phases, excess_ms=late))
    return Ranks(world_size=number, steps=380, own_phases=("data_wait",), rows=tuple(rows))


def speed_levels(steps: int) -> tuple[SpeedLevel, ...]:
    """Two levels: 25 ms in the first half of the run, 30 ms in the second."""
    half = steps // 2
    levels = ((12, half - 1, 25.0), (half, steps - 1, 30.0))
    return tuple(
        SpeedLevel(
            from_batch=first,
            to_batch=last,
            count=last - first + 1,
            period_ms=distribution(median),
            phases_ms={"data_wait": median - 15.0, "forward": 4.2, "backward": 7.9, "validation": 0.0},
        )
        for first, last, median in levels
    )


def ledger(parts: dict[str, float], wall: float) -> tuple[LedgerRow, ...]:
    """Rows that sum to the wall time: the training steps in five, every other part in one."""

    def row(part: Part, phase: Phase | None, name: str, hook: str, total_s: float, count: int | None) -> LedgerRow:
        return LedgerRow(
            part=part, phase=phase, name=name, hook=hook, total_s=total_s, share=total_s / wall, count=count
        )

    train = parts["train"]
    rows = [
        row("train", "data_wait", "fetch", "", 0.42 * train, 396),
        row("train", "data_wait", "fetch of the first batch", "", 0.02 * train, 4),
        row("train", "backward", "backward", "", 0.3 * train, 400),
        row("train", "forward", "training_step", "", 0.2 * train, 400),
        row("train", "callbacks", "SlowImageLogger", "on_train_batch_end", 0.058 * train, 400),
        row("setup", "loop", "setup_data: loaders, first iter(dataloader)", "", parts["setup"], 1),
        row("sanity", "forward", "validation_step", "", parts["sanity"], 1),
        row("validation", "data_wait", "fetch", "", 0.7 * parts["validation"], 4),
        row("validation", "forward", "validation_step", "", 0.3 * parts["validation"], 4),
        row("checkpoint", "checkpoint", "ModelCheckpoint", "on_validation_end", parts["checkpoint"], 4),
        row("epoch_gap", "loop", "iter(dataloader): workers start", "", parts["epoch_gap"], 4),
        *(row("train", "logging", f"Logger{i}", "log_metrics", 0.002 * train / 10, 40) for i in range(10)),
        row("teardown", "callbacks", "TQDMProgressBar", "teardown", parts["teardown"], 1),
    ]
    rows.sort(key=lambda r: -r.total_s)
    return (*rows, row("unexplained", None, "unexplained", "", wall - sum(r.total_s for r in rows), None))


def full_memory(name: str = "train.py") -> Memory:
    """Memory of a run that was read everywhere, and ran out of it."""
    held = (
        Held(device="cuda:0", dtype="float32", parameters_bytes=400 << 20, gradients_bytes=400 << 20),
        Held(device="cuda:0", dtype="bfloat16", optimizer_state_bytes=800 << 20, buffers_bytes=1 << 20),
    )
    history = MemoryHistory(
        reason="window",
        start_step=200,
        stop_step=206,
        device=0,
        events=4_000,
        peak_bytes=3 << 30,
        at_peak=(SourceHolder(place=f"{name}:31 training_step", held_bytes=1 << 30, count=12),),
        peaks_by_phase={"forward": 3 << 30, "backward": 2 << 30},
        file="rank0.1763705000000000001.memory_snapshot.pickle",
    )
    return Memory(
        process_rss_peak_bytes=1.4e9,
        devices=(
            DeviceMemory(
                name=f"gpu0 {name}",
                total_bytes=80 << 30,
                samples=60,
                allocated_peak_bytes=3.0 * 2**30,
                reserved_peak_bytes=4.0 * 2**30,
                peak_ratio=0.05,
                headroom_bytes=76.0 * 2**30,
                inactive_split_at_peak_bytes=100.0 * 2**20,
                fragmentation_ratio=0.0244,
                unused_ratio=0.25,
                retries_count=2,
                retries_steady_count=1,
                ooms_count=1,
                device_allocs_steady_count=7,
                device_frees_steady_count=None,
                allocations_per_step=1234.0,
                steady_steps=300,
                activations_bytes=1.4 * 2**30,
                activations_ratio=0.47,
                gradients_live_in_forward=True,
                peak_phase="backward",
                phases=tuple(
                    PhaseMemory(
                        phase=phase,
                        samples=10,
                        allocated_bytes=(2 + number / 10) * 2**30,
                        reserved_bytes=4.0 * 2**30,
                        active_bytes=None,
                        inactive_split_bytes=9.0 * 2**20,
                        growth_bytes=2**30 / 10,
                        peak_rise_bytes=None,
                    )
                    for number, phase in enumerate(MEMORY_PHASES)
                ),
            ),
        ),
        held=held,
        growth=(
            Growth(
                what="process rss",
                samples=40,
                steps=1280,
                first_bytes=1.2e9,
                last_bytes=1.4e9,
                bytes_per_step=7e5,
                p_value=1e-6,
            ),
        ),
        histories=(history,),
        out_of_memory=OutOfMemory(
            message=f"CUDA out of memory. {name}",
            batch=310,
            global_step=310,
            phase="forward",
            place=f"{name}:3 f",
            requested_bytes=20 << 30,
            held=held,
            other_bytes=2 << 30,
            history_absent="the allocator's history was not recorded",
        ),
    )


def minimal_report() -> Report:
    """A run that was stopped before its first step, on a machine without a GPU: everything that can be None is."""
    return empty(
        Report,
        validity=Validity(ok=False, caveats=("The run has no training step.",)),
        wall=Wall(total_s=0.0, parts={}),
        steps=Steps(count=0, optimizer_steps=0, steady_from=None, steady_count=0, period_ms=None, samples_per_s=None),
        host=HostUse(),
        memory=Memory(),
        verdict=Verdict(kind="not-enough-data", summary="There are no steps to judge."),
    )


def evaluation_report(stage: str) -> Report:
    """A run of ``validate``, ``test`` or ``predict`` alone, in which nothing is wrong."""
    report = full_report()
    return msgspec.structs.replace(
        report,
        run={**report.run, "stage": stage},
        wall=Wall(total_s=2.0, parts={"setup": 0.2, stage: 1.8, "teardown": 0.0, "unexplained": 0.0}),
        steps=msgspec.structs.replace(report.steps, optimizer_steps=0, speed_levels=()),
        verdict=Verdict(kind="compute-bound", summary="The model's own work takes most of a step."),
        findings=(),
        ledger=(
            LedgerRow(part="setup", phase="loop", name="other", hook="", total_s=2.0, share=1.0, count=1),
            LedgerRow(part="unexplained", phase=None, name="unexplained", hook="", total_s=0.0, share=0.0),
        ),
    )


def hostile_report() -> Report:
    """The full report with a hostile name, and one of 10 kB, wherever a name from outside can stand."""
    report = full_report(name=HOSTILE)
    huge = HOSTILE + "n" * 10_000
    finding = report.findings[0]
    return msgspec.structs.replace(
        report,
        run={**report.run, HOSTILE: huge},
        validity=Validity(ok=True, caveats=(HOSTILE, huge)),
        callbacks=(
            CallbackRow(name=HOSTILE, hook=HOSTILE, total_s=0.2, share=0.02),
            CallbackRow(name=huge, hook="on_train_batch_end", total_s=0.1, share=0.01),
        ),
        devices=(hostile_device(report.devices[0]),),
        host=msgspec.structs.replace(HOST, threads=(ThreadUse(kind=HOSTILE, threads_count=1.0),)),
        memory=full_memory(HOSTILE),
        windows=(
            msgspec.structs.replace(
                report.windows[0],
                file=HOSTILE,
                problem=HOSTILE,
                top_operators=(OperatorRow(name=huge, count=1, total_us=1.0),),
                top_kernels=(OperatorRow(name=HOSTILE, count=1, total_us=1.0),),
            ),
        ),
        verdict=Verdict(kind="mixed", summary=HOSTILE, runner_up=HOSTILE),
        findings=(
            Finding(
                rule=HOSTILE,
                severity="critical",
                subject=huge,
                summary=HOSTILE,
                advice=HOSTILE,
                evidence=(
                    Evidence(name=HOSTILE, value=HOSTILE, unit=HOSTILE, limit=1.0, source=HOSTILE),
                    Evidence(name=huge, value=1.0, unit=HOSTILE),
                ),
                gain=finding.gain,
            ),
        ),
        ledger=(
            LedgerRow(part="train", phase="callbacks", name=HOSTILE, hook=HOSTILE, total_s=3.0, share=0.3, count=1),
            LedgerRow(part="train", phase="callbacks", name=huge, hook=huge, total_s=1.0, share=0.1, count=1),
            *report.ledger[-1:],
        ),
        not_evaluated=(NotEvaluated(rule=HOSTILE, why=HOSTILE),),
        overhead={HOSTILE: 1.0},
        series={**report.series, f"{HOSTILE}_ms": report.series["period_ms"]},
        curves=(*report.curves, msgspec.structs.replace(report.curves[0], subject=HOSTILE)),
        ranks=ranks(2, host=HOSTILE),
    )


def hostile_device(device: Device) -> Device:
    """A GPU of which every text tries to leave every format."""
    return msgspec.structs.replace(
        device,
        name=HOSTILE,
        uuid=HOSTILE,
        values={HOSTILE: None},
        facts=DeviceFacts(driver_version=HOSTILE, gpm=HOSTILE),
        throttle=(ThrottleShare(reason=HOSTILE, ratio=1.0, busy_ratio=1.0),),
        errors=(ErrorCounter(name=HOSTILE, first=0.0, last=1.0),),
    )


def slower(report: Report) -> Report:
    period = distribution(40.0)
    steps = msgspec.structs.replace(
        report.steps,
        period_ms=period,
        samples_per_s=64 / 40.0 * 1e3,
        period_median_interval_ms=(39.5, 40.5),
        period_mean_interval_ms=(40.3, 41.3),
    )
    wall = msgspec.structs.replace(report.wall, total_s=report.wall.total_s * 1.6)
    return msgspec.structs.replace(report, steps=steps, wall=wall)
