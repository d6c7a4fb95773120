"""Builds the run that an example's changes describe."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import msgspec
from compile_builder import compiled, graph_break, recompile
from device_builder import collective, distributed
from empty_structs import empty
from feeding_builder import looked_at, starved
from gpu_builder import copying_window, gpu, held
from gpu_builder import errors as all_errors
from host_builder import beside_thread, collecting, growing, short_quota, swapping
from memory_builder import memory_run
from metrics_builder import HEALTHY_MS, build, outliers, replace, share, varied_shapes
from ranks_builder import with_rank_memory, with_ranks
from traced_examples import kernels_run, stepping_run
from uneven_builder import of_fifths, stretch

from lightning_gpuprof.model.compilation import CompileFacts
from lightning_gpuprof.model.evenness import Evenness
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.input_pipeline import Padding
from lightning_gpuprof.model.metrics import HookShare, LoggerWrites, Metrics
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.report import Device, LedgerRow, Wall
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.attribution import Attribution, ModuleTime
from lightning_gpuprof.model.window import WindowFacts

_STARVED = set(signature(starved).parameters) - set(signature(build).parameters) - {"changes"}
_MAKERS: dict[str, Callable[..., Metrics]] = {
    "kernels": kernels_run,
    "step": stepping_run,
    "allocator": memory_run,
    "collectives": lambda collectives, **more: distributed([collective(**one) for one in collectives], **more),
}


def example_run(**changes: Any) -> Metrics:
    """A healthy run with changes: the keywords of ``build``, and these.

    - ``kernels``: it was traced on a GPU, with these and other keywords of ``kernels_run``; ``step``: with those of
      ``stepping_run``.
    - Keywords that only ``starved`` has: steps wait for their batches, which two workers make.
    - ``stalls``: outlying steps, the keywords of ``outliers``.
    - ``run_delay_ms``: how long the main thread waits for a CPU in each step; ``cpus_of_others``: what others use.
    - ``speed_levels``: parts of the run, each the keywords of ``stretch``; ``fifths``: those of ``of_fifths``.
    - ``warm_up_s``: what 12 steps of warm-up took longer than steady ones; ``taken_in_warm_up``: CPUs of others then.
    - ``gpu``: it is on a GPU, with these keywords of ``gpu``; ``throttle`` are arguments of ``held``, ``errors``
      those of ``errors``. ``allocator``: the same, with these and other keywords of ``memory_run``.
    - ``copied``: its trace window has copies, keywords of ``copying_window``.
    - ``hooks``: around the transfer of a batch, in ms by owner and name; their line is the first of ``sites["h2d"]``.
    - ``writes_ms``: what each logger takes in a step, by name.
    - ``wall_s``: parts of the wall time that differ; None: not measured. ``val_wait_s``: fetches of validation.
    - ``ranks``: it has several, with these keywords of ``with_ranks``; ``rank_memory``: of ``with_rank_memory``.
    - ``collectives``: it has eight, and a trace window with collectives of these keywords of ``collective``; others are
      those of ``distributed``.
    - ``gaps_s``: the time between its epochs of 5 s; ``gap_ledger`` says where it went: name, seconds and hook.
    - ``compiled``: torch.compile was at work, with these keywords of ``compiled``.
    - ``growing``, ``collecting``, ``beside``, ``quota``, ``swapping``: the host does this, by ``host_builder``.
    - ``padding``: its batches were looked at, with these fields of ``Padding``; None: they were not.
    - ``shapes``: its batches have lengths of their own, but for these fields of ``BatchShapes``; None: nobody looked.
    - ``metric_calls``: it has a metric that updates twice, ``train_f1``, whose calls take ``ms`` in a window; None:
      there is none with modules.
    - ``metrics``: other fields of ``Metrics``.
    """
    if isinstance(changes.get("stalls"), Mapping):
        period_ms = sum({**HEALTHY_MS, **changes.get("times_ms", {})}.values())
        changes["stalls"] = outliers(steps=changes.get("steady", 380), period_ms=period_ms, **changes["stalls"])
    parts = {name: changes.pop(name) for name in _PARTS if name in changes}
    if "gpu" in parts:
        changes["run"] = {"device.type": "cuda", **changes.get("run", {})}
    healthy = starved if _STARVED & set(changes) else build
    make = next((_MAKERS[name] for name in _MAKERS if name in changes), healthy)
    metrics = make(**changes)
    for name, part in parts.items():
        metrics = _PARTS[name](metrics, part)
    return metrics


def _delayed(metrics: Metrics, ms: float) -> Metrics:
    assert metrics.period_ms is not None
    waited = share(ms, metrics.period_ms)
    cpu = replace(metrics.cpu, run_delay_ratio=waited.median_ratio, run_delay=waited, run_delay_samples=40)
    return replace(metrics, cpu=cpu)


def _beside_others(metrics: Metrics, use: float | None) -> Metrics:
    level = None if use is None else Level(mean=use, max=use)
    return replace(metrics, host=HostUse(machine=MachineUse(cpu_others_cpus=level)))


def _with_wall(metrics: Metrics, parts_s: Mapping[Any, float | None]) -> Metrics:
    parts = {name: value for name, value in {**metrics.wall.parts, **parts_s}.items() if value is not None}
    return replace(metrics, wall=Wall(total_s=sum(parts.values()), parts=parts))


def _with_val_wait(metrics: Metrics, wait_s: float) -> Metrics:
    row = LedgerRow(part="validation", phase="data_wait", name="fetch", hook="", total_s=wait_s, share=0.1, count=4)
    return replace(metrics, ledger=(row,))


def _with_gaps(metrics: Metrics, gaps_s: Sequence[float]) -> Metrics:
    made = zip(metrics.epoch_starts, (0.0, *gaps_s), strict=True)
    starts = tuple(replace(start, gap_s=gap_s + start.iterator_s) for start, gap_s in made)
    return replace(_with_wall(metrics, {"epoch_gap": sum(gaps_s)}), epoch_starts=starts)


def _with_gap_ledger(metrics: Metrics, rows: Sequence[tuple[str, float, str]]) -> Metrics:
    ledger = tuple(
        LedgerRow(part="epoch_gap", phase="callbacks", name=name, hook=hook, total_s=total_s, share=0.1, count=3)
        for name, total_s, hook in rows
    )
    return replace(metrics, ledger=ledger)


def _of_speed_levels(metrics: Metrics, parts: tuple[Mapping[str, Any], ...]) -> Metrics:
    return replace(metrics, evenness=Evenness(speed_levels=tuple(stretch(**part) for part in parts)))


def _gpu(
    throttle: Sequence[tuple[str, float, float]] = (), errors: Mapping[str, float] | None = None, **part: Any
) -> Device:
    counters = () if errors is None else all_errors(**errors)
    return gpu(*(held(*reason) for reason in throttle), errors=counters, **part)


def _hooked(metrics: Metrics, hooks: Mapping[tuple[str, str], float]) -> Metrics:
    assert metrics.period_ms is not None
    sites = [row.sites[0][0] for row in metrics.blocked or () if row.phase == "h2d" and row.sites]
    found = [
        HookShare(owner=owner, hook=name, share=share(ms, metrics.period_ms), site=sites[0] if sites else "")
        for (owner, name), ms in hooks.items()
    ]
    return replace(metrics, transfer_hooks=tuple(found))


def _compiled(
    recompiles: Sequence[Mapping[str, Any]] = (), breaks: Sequence[Mapping[str, Any]] = (), **facts: Any
) -> CompileFacts | None:
    made = compiled([recompile(**one) for one in recompiles], [graph_break(**one) for one in breaks], **facts)
    return made.compile


def _calling(metrics: Metrics, ms: float | None) -> Metrics:
    run = {**metrics.run, "model.metrics_updated_twice": "train_f1"}
    if ms is None:
        return replace(metrics, run=run)
    paths_us = {("Net",): 30e3, ("Net", "train_f1"): 1e3 * ms} if ms else {("Net",): 30e3}
    window = next(iter(metrics.windows), empty(WindowFacts, steps_us=(50e3,) * 5))
    slower = sum(window.steps_us) / 50e3
    modules = tuple(empty(ModuleTime, path=path, host_us=slower * us) for path, us in paths_us.items())
    analysis = TraceAnalysis(attribution=empty(Attribution, modules=modules))
    return replace(metrics, run=run, windows=(msgspec.structs.replace(window, analysis=analysis),))


def _writing(metrics: Metrics, writes_ms: Mapping[str, float]) -> Metrics:
    assert metrics.period_ms is not None
    found = [
        LoggerWrites(name=name, share=share(ms, metrics.period_ms), count=metrics.steps.steady_count, each_ms=ms)
        for name, ms in writes_ms.items()
    ]
    return replace(metrics, logger_writes=tuple(found))


_PARTS: dict[str, Callable[[Metrics, Any], Metrics]] = {
    "wall_s": _with_wall,
    "val_wait_s": _with_val_wait,
    "ranks": lambda metrics, part: with_ranks(metrics, **part),
    "rank_memory": lambda metrics, part: with_rank_memory(metrics, **part),
    "run_delay_ms": _delayed,
    "cpus_of_others": _beside_others,
    "gaps_s": _with_gaps,
    "gap_ledger": _with_gap_ledger,
    "quota": lambda metrics, part: replace(metrics, host=short_quota(**part)),
    "swapping": lambda metrics, part: replace(metrics, host=swapping(**part)),
    "speed_levels": _of_speed_levels,
    "warm_up_s": lambda metrics, part: replace(metrics, evenness=Evenness(warmup_steps=12, warmup_excess_s=part)),
    "taken_in_warm_up": lambda metrics, part: replace(
        metrics, evenness=msgspec.structs.replace(metrics.evenness, warmup_taken_cpus=part)
    ),
    "fifths": lambda metrics, part: replace(metrics, evenness=of_fifths(**part).evenness),
    "gpu": lambda metrics, part: replace(metrics, devices=(_gpu(**part),)),
    "copied": lambda metrics, part: replace(metrics, windows=(copying_window(**part),)),
    "hooks": _hooked,
    "writes_ms": _writing,
    "compiled": lambda metrics, part: replace(metrics, compile=_compiled(**part)),
    "growing": lambda metrics, part: replace(metrics, host=growing(**part)),
    "collecting": lambda metrics, part: replace(metrics, host=collecting(**part)),
    "beside": lambda metrics, part: replace(metrics, interpreter_lock=beside_thread(**part)),
    "padding": lambda metrics, part: replace(metrics, input=looked_at(None if part is None else Padding(**part))),
    "shapes": lambda metrics, part: replace(
        metrics, batch_shapes=Unmeasured(why="no batch was inspected") if part is None else varied_shapes(**part)
    ),
    "metric_calls": lambda metrics, part: _calling(metrics, **part),
    "metrics": lambda metrics, part: replace(metrics, **part),
}
