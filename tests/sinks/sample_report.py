"""Reports for tests: one with everything in it, one of a run in which nothing could be measured."""

from __future__ import annotations

import math
import random

import msgspec

from lightning_gpuprof.model.finding import Evidence, Finding, Gain, NotEvaluated, Verdict, speedup
from lightning_gpuprof.model.phases import PHASES, Part, Phase
from lightning_gpuprof.model.report import (
    SCHEMA_VERSION,
    CallbackRow,
    Device,
    Distribution,
    LedgerRow,
    PhaseRow,
    Regime,
    Report,
    Steps,
    Validity,
    Wall,
)
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
    curves.update({f"{phase}_ms": column for phase, column in columns.items()})
    return curves


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
        schema_version=SCHEMA_VERSION,
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
            regimes=regimes(steps),
        ),
        phases=tuple(
            PhaseRow(
                phase=phase,
                median_ms=MEDIANS_MS.get(phase),
                p95_ms=MEDIANS_MS[phase] * 1.15 if phase in MEDIANS_MS else None,
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
                },
            ),
        ),
        host={"process.cpu_cpus_mean": 1.02, "workers.cpu_cpus_mean": None, "host.cpu_busy_ratio_mean": 0.21},
        memory={"device_peak_bytes": 2.9e9, "process_rss_peak_bytes": 1.4e9, "host_available_bytes": None},
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
                reason="slow step: period 31 ms against 12 ms",
                inflation_ratio=1.83,
            ),
            WindowFacts(
                start_step=300, stop_step=302, reason="planned", problem="the user's own PyTorchProfiler was running"
            ),
        ),
        verdict=Verdict(
            kind="input-bound",
            summary="43 % of a step the training thread waits for the next batch; nothing else loads data meanwhile.",
            runner_up="loop-bound: callbacks take 3 % of a step.",
        ),
        findings=(
            Finding(
                rule="single-process-loading",
                severity="critical",
                subject="DataLoader of DigitsFolder",
                summary="The training thread loads every batch itself: it waits 11.8 of 27.2 ms per step.",
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
    )


def regimes(steps: int) -> tuple[Regime, ...]:
    """Two levels: 25 ms in the first half of the run, 30 ms in the second."""
    half = steps // 2
    levels = ((12, half - 1, 25.0), (half, steps - 1, 30.0))
    return tuple(
        Regime(
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


def minimal_report() -> Report:
    """A run that was stopped before its first step, on a machine without a GPU: everything that can be None is."""
    return Report(
        schema_version=SCHEMA_VERSION,
        run={},
        validity=Validity(ok=False, caveats=("The run has no training step.",)),
        wall=Wall(total_s=0.0, parts={}),
        steps=Steps(count=0, optimizer_steps=0, steady_from=None, steady_count=0, period_ms=None, samples_per_s=None),
        phases=(),
        callbacks=(),
        devices=(),
        host={},
        memory={},
        windows=(),
        verdict=Verdict(kind="not-enough-data", summary="There are no steps to judge."),
        findings=(),
        not_evaluated=(),
        overhead={},
    )


def evaluation_report(stage: str) -> Report:
    """A run of ``validate``, ``test`` or ``predict`` alone, in which nothing is wrong."""
    report = full_report()
    return msgspec.structs.replace(
        report,
        run={**report.run, "stage": stage},
        wall=Wall(total_s=2.0, parts={"setup": 0.2, stage: 1.8, "teardown": 0.0, "unexplained": 0.0}),
        steps=msgspec.structs.replace(report.steps, optimizer_steps=0, regimes=()),
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
        devices=(msgspec.structs.replace(report.devices[0], name=HOSTILE, uuid=HOSTILE, values={HOSTILE: None}),),
        host={HOSTILE: 1.0},
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
    )
