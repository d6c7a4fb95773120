"""Builds a consistent Metrics: a healthy run unless a keyword says otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from lightning_gpuprof.analyze.derived import with_derived
from lightning_gpuprof.model.batch_shapes import BatchShapes
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.memory import Memory
from lightning_gpuprof.model.metrics import CallbackShare, CpuFacts, EpochStart, LoaderFacts, Metrics, Recurring
from lightning_gpuprof.model.outliers import Outliers
from lightning_gpuprof.model.phases import Phase, parts_of
from lightning_gpuprof.model.report import Distribution, PhaseRow, Steps, Validity, Wall
from lightning_gpuprof.model.share import Share
from lightning_gpuprof.model.waiting import Blocked, InterpreterLock
from lightning_gpuprof.model.window import DeviceActivity, WindowFacts

HEALTHY_MS: Mapping[Phase, float] = {
    "data_wait": 0.8,
    "h2d": 0.1,
    "forward": 20.0,
    "backward": 22.0,
    "optimizer": 4.0,
    "zero_grad": 0.5,
    "callbacks": 0.4,
    "logging": 0.3,
    "loop": 1.9,
    **dict.fromkeys(("clip", "validation", "checkpoint", "sync"), 0.0),
}
"""Median time of each phase in a step of 50 ms."""
SHORT_MS: Mapping[Phase, float] = {
    "forward": 2.0,
    "backward": 2.0,
    "optimizer": 0.3,
    "zero_grad": 0.1,
    "loop": 0.3,
    "data_wait": 0.2,
    "callbacks": 0.1,
    "logging": 0.1,
    "h2d": 0.1,
}
"""In one of 5.2 ms."""

LOWER = 0.98
"""Lower bound over median of every share."""


Anything = TypeVar("Anything")


def replace(old: Anything, /, **changes: Any) -> Anything:
    """A struct with other fields; of Metrics, what is computed from them is computed anew."""
    new: Any = msgspec.structs.replace(old, **changes)  # type: ignore[type-var]
    return with_derived(new) if isinstance(new, Metrics) else new


def share(median_ms: float, period_ms: float, *, lower: float = LOWER, total_ratio: float | None = None) -> Share:
    """A share of a step."""
    ratio = median_ms / period_ms
    return Share(
        median_ratio=ratio,
        lower_ratio=lower * ratio,
        median_ms=median_ms,
        total_ratio=ratio if total_ratio is None else total_ratio,
        total_lower_ratio=lower * (ratio if total_ratio is None else total_ratio),
    )


def distribution(median: float) -> Distribution:
    """A narrow distribution."""
    return Distribution(
        mean=median,
        std=0.02 * median,
        median=median,
        p05=0.97 * median,
        p95=1.03 * median,
        p99=1.05 * median,
        min=0.96 * median,
        max=1.06 * median,
    )


def outliers(
    *,
    count: int,
    stall_ms: float,
    phases: Mapping[Phase, float] | Phase,
    steps: int,
    period_ms: float,
    every: int = 0,
    delayed_ratio: float | None = None,
) -> Outliers:
    """Stalls of one length in otherwise equal steps; ``phases`` says which part of the excess each phase holds."""
    parts: Mapping[Phase, float] = {phases: 1.0} if isinstance(phases, str) else phases
    excess_ms = count * stall_ms
    return Outliers(
        count=count,
        checked=steps,
        limit_ms=1.5 * period_ms,
        excess_ms=excess_ms,
        total_ms=steps * period_ms + excess_ms,
        worst_ms=period_ms + stall_ms,
        excess_by_phase_ms={phase: part * excess_ms for phase, part in parts.items()},
        batches=tuple((every or 37) * (i + 1) + (0 if every else i % 3) for i in range(min(count, 20))),
        delayed_ratio=delayed_ratio,
    )


def varied_shapes(**changes: Any) -> BatchShapes:
    """13 batches of 12 lengths, in steps of 20 to 80 ms, but for the changes."""
    looks = {"looks": 13, "shapes": 12, "smallest": "16x8", "largest": "16x184", "compared": 12}
    times = {"correlation": 0.95, "spread_ratio": 0.4, "smallest_ms": 20.0, "largest_ms": 80.0}
    return BatchShapes(**{**looks, **times, **changes})


def calm_host() -> HostUse:
    """A host that was sampled and does not swap; of its CPUs nothing is known."""
    return HostUse(samples=30, machine=MachineUse(swapping_samples=0, swap_in_bytes_per_s=Level(mean=0.0, max=0.0)))


def busy_machine(ratio: float | None) -> HostUse:
    """A host of which only the use of all its CPUs is known, or not even that."""
    return HostUse(machine=MachineUse(cpu_busy_ratio=None if ratio is None else Level(mean=ratio, max=ratio)))


def build(
    *,
    times_ms: Mapping[Phase, float] | None = None,
    lower: float = LOWER,
    steps: int = 400,
    steady: int | None = None,
    epochs: int = 4,
    loader: LoaderFacts | None = None,
    no_loader: bool = False,
    num_workers: int | None = 2,
    persistent_workers: bool | None = True,
    batch_size: int | None = 32,
    prefetch_factor: int = 2,
    usable_cpus: float = 4.0,
    process_cpus: float | None = 1.0,
    worker_cpus: float | None = 0.3,
    fetch_waited_ratio: float | None = 0.02,
    iterator_s: float = 0.002,
    first_wait_s: float = 0.05,
    callbacks_ms: Mapping[tuple[str, str], float] | None = None,
    blocked_ms: Mapping[Phase, float] | None = None,
    blocked_samples: int = 40,
    sites: Mapping[Phase, Sequence[tuple[str, int]]] | None = None,
    blocked_known: bool = True,
    validation: tuple[int, float] = (4, 1.0),
    checkpoint: tuple[int, float] = (4, 0.2),
    stalls: Outliers | None = None,
    outliers_known: bool = True,
    run: Mapping[str, Value] | None = None,
    host: HostUse | None = None,
    idle_ratio: float | None = None,
) -> Metrics:
    """A healthy run of 400 steps of 50 ms on a CPU with two workers, and what the keywords change in it.

    Args:
        times_ms: Median phase times that differ; the period is their sum.
        lower: Lower bound over median of every share.
        steps: All steps.
        steady: Steady steps; default: all but 20.
        epochs: Epochs, of equal length.
        loader: The whole loader; otherwise made of the arguments of a DataLoader.
        no_loader: Nothing is known about the loader.
        num_workers: Of the loader.
        persistent_workers: Of the loader.
        batch_size: Of the loader.
        prefetch_factor: Of the loader, if it has workers.
        usable_cpus: CPUs that the run may use.
        process_cpus: CPUs that the process used.
        worker_cpus: CPUs that the workers used.
        fetch_waited_ratio: Share of steps that found no batch ready.
        iterator_s: ``iter(dataloader)`` of every epoch.
        first_wait_s: First fetch of every epoch.
        callbacks_ms: Time of callbacks by class and hook; it should be part of ``times_ms["callbacks"]``.
        blocked_ms: Blocked time in phases.
        blocked_samples: Steps whose CPU time was read.
        sites: Call sites per phase.
        blocked_known: Whether CPU time was read at all.
        validation: Runs and total seconds.
        checkpoint: Saves and total seconds.
        stalls: Outlying steps.
        outliers_known: Whether outliers could be told.
        run: Conditions that differ.
        host: Host facts.
        idle_ratio: What trace windows say about the device; None: no device in them.
    """
    times: dict[Phase, float] = {**HEALTHY_MS, **(times_ms or {})}
    period_ms = sum(times.values())
    steady = max(0, steps - 20) if steady is None else steady
    shares: dict[Phase, Share] = {phase: share(ms, period_ms, lower=lower) for phase, ms in times.items()}
    if outliers_known and stalls is None:
        stalls = outliers(count=0, stall_ms=0.0, phases={}, steps=max(steady, 1), period_ms=period_ms)
    excess_s = stalls.excess_ms / 1e3 if stalls is not None else 0.0
    train_s = steps * period_ms / 1e3 + excess_s
    gap_s = 0.01 + iterator_s
    parts = dict.fromkeys(parts_of("fit"), 0.0) | {
        "setup": 0.5,
        "teardown": 0.1,
        "train": train_s,
        "validation": validation[1],
        "checkpoint": checkpoint[1],
        "epoch_gap": epochs * gap_s,
    }
    callback_shares = tuple(
        sorted(
            (
                CallbackShare(name=name, hook=hook, share=share(ms, period_ms, lower=lower))
                for (name, hook), ms in (callbacks_ms or {}).items()
            ),
            key=lambda c: -c.share.median_ratio,
        )
    )
    blocked = tuple(
        Blocked(
            phase=phase,
            wall_ms=times.get(phase, 0.0),
            blocked=share((blocked_ms or {}).get(phase, 0.01 * times.get(phase, 0.0)), period_ms, lower=lower),
            samples=blocked_samples,
            sites=tuple((sites or {}).get(phase, ())),
        )
        for phase in ("forward", "backward", "optimizer", "zero_grad", "h2d")
    )
    if loader is None and not no_loader:
        loader = LoaderFacts(
            kind="DataLoader",
            num_workers=num_workers,
            batch_size=batch_size,
            pin_memory=False,
            persistent_workers=persistent_workers,
            prefetch_factor=prefetch_factor if num_workers else None,
            dataset="Digits",
        )
    metrics = Metrics(
        run={
            "device.type": "cpu",
            "torch.num_threads": 1,
            "trainer.world_size": 1,
            "trainer.log_every_n_steps": 50,
            "trainer.check_val_every_n_epoch": 1,
            "model.class": "Net",
            **(run or {}),
        },
        validity=Validity(ok=True),
        status="finished",
        wall=Wall(total_s=sum(parts.values()), parts=parts),
        steps=Steps(
            count=steps,
            optimizer_steps=steps,
            steady_from=10 if steady else None,
            steady_count=steady,
            period_ms=distribution(period_ms) if steady else None,
            samples_per_s=32e3 / period_ms if steady else None,
        ),
        phases=tuple(
            PhaseRow(phase=phase, median_ms=ms, p95_ms=ms, mean_ms=ms, total_s=steps * ms / 1e3, share=ms / period_ms)
            for phase, ms in times.items()
        ),
        shares=shares if steady else {},
        callbacks=(),
        callback_shares=callback_shares if steady else (),
        loader=loader,
        cpu=CpuFacts(usable_cpus=usable_cpus, process_cpus=process_cpus, worker_cpus=worker_cpus),
        fetch_waited_ratio=fetch_waited_ratio if steady else None,
        epoch_starts=tuple(
            EpochStart(
                epoch=epoch,
                gap_s=gap_s,
                iterator_s=iterator_s,
                first_wait_s=first_wait_s,
                steps_s=train_s / epochs,
            )
            for epoch in range(epochs)
        ),
        validation=_recurring(validation),
        checkpoint=_recurring(checkpoint, "ModelCheckpoint"),
        blocked=blocked if blocked_known else None,
        outliers=stalls if outliers_known else None,
        devices=(),
        batch_shapes=varied_shapes(shapes=1, largest="16x8", correlation=0.0, spread_ratio=0.0, largest_ms=20.0),
        host=host or calm_host(),
        memory=Memory(),
        windows=() if idle_ratio is None else (_window(idle_ratio, period_ms),),
        overhead={"boundary_us_per_step": 20.0},
        interpreter_lock=InterpreterLock(
            asked=100, late=2, waited=share(0.01 * period_ms, period_ms), samples=blocked_samples
        )
        if blocked_known
        else None,
    )
    return replace(metrics)


def _recurring(times: tuple[int, float], subject: str = "") -> Recurring:
    count, total_s = times
    return Recurring(
        count=count, total_s=total_s, median_s=total_s / count if count else None, subject=subject if count else ""
    )


def _window(idle_ratio: float, period_ms: float) -> WindowFacts:
    """Five steps that tracing made 1.3 times as long."""
    busy_us = 5 * (1 - idle_ratio) * period_ms * 1e3
    window_us = 5 * 1.3 * period_ms * 1e3
    device = DeviceActivity(device="0", kernels=500, window_us=window_us, busy_us=busy_us, idle_us=window_us - busy_us)
    return WindowFacts(
        start_step=100,
        stop_step=104,
        steps_us=(1.3 * period_ms * 1e3,) * 5,
        kernels=500,
        launches_matched=500,
        launches_unmatched=3,
        devices=(device,),
    )


def scaled(metrics: Metrics, factor: float) -> Metrics:
    """The same run in which everything took ``factor`` times as long."""
    return replace(_slower(metrics, factor))


def _slower(value: Any, factor: float, *, is_time: bool = False) -> Any:
    """A copy in which all numbers of milliseconds, microseconds and seconds are ``factor`` times as many."""
    if isinstance(value, msgspec.Struct):
        fields = {name: (getattr(value, name), is_time or _is_time(name)) for name in value.__struct_fields__}
        changed = {name: _slower(old, factor, is_time=time) for name, (old, time) in fields.items()}
        return msgspec.structs.replace(value, **changed)
    if isinstance(value, tuple):
        return tuple(_slower(item, factor, is_time=is_time) for item in value)
    if isinstance(value, Mapping):
        return {key: _slower(item, factor, is_time=is_time) for key, item in value.items()}
    return value * factor if is_time and isinstance(value, (int, float)) else value


def _is_time(field: str) -> bool:
    return field == "parts" or (field.endswith(("_ms", "_us", "_s")) and not field.endswith("_per_s"))
