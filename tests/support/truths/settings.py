"""Fits whose fault is a setting: each run with it and without it, and tried by ``gpuprof try``."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.metrics import build
from lightning_gpuprof.capture.host.cgroups import affinity, usable_cpus
from lightning_gpuprof.capture.switches import TRIAL
from lightning_gpuprof.cli.try_ import SECONDS
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.loading import Loading
from lightning_gpuprof.model.trial import Arm, Event, Plan
from lightning_gpuprof.rules.prediction import with_workers
from lightning_gpuprof.sinks.trial_tables import best
from lightning_gpuprof.trial.arms import loader_arms
from lightning_gpuprof.trial.attach import EVENTS_FILE, PLAN_FILE, attach
from lightning_gpuprof.trial.results import result
from truths.cures import as_advised
from truths.faults_of_data import rare_slow_items, slow_batch, slow_items, workers
from truths.faults_of_loops import csv_logger, many_values, trainer
from truths.fits import Fit
from truths.models import Kind
from truths.running import SLICES_S, Job, RunOutcome, each_in_slices, in_own_process, outcome_of, paired
from truths.setup import Fault, Setup, fault

LIMIT_S = 600.0
"""Of two runs and a trial, or of a run with each setting of a search and a trial."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A fit and a change of one of its settings."""

    name: str
    fit: Fit
    change: Change
    no_gain: bool = False
    """Nothing in this fit depends on the setting."""

    @property
    def kind(self) -> str:
        """Which argument is changed."""
        return f"{next(iter(self.change.arguments))}{' in vain' if self.no_gain else ''}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a setting brought, in ms of the mean step."""

    name: str
    no_gain: bool
    before_ms: float
    after_ms: float
    unsure: float
    """Standard error of the ratio of both, 0.01 for 1 %: what is less off is not known to be off."""
    expected: Expected | None
    """What the first run's report expects of the change; None: no finding of it has this change."""
    base_ms: float | None
    """Before the change, in the trial."""
    tried_ms: float | None
    """After it, in the trial."""
    lower_ms: float | None
    upper_ms: float | None
    outcome: str

    @property
    def achieved(self) -> float:
        """Speed-up of a run with the change over one without it, in slices of time."""
        return self.before_ms / self.after_ms

    @property
    def tried(self) -> float | None:
        """Speed-up in the trial."""
        return None if self.base_ms is None or self.tried_ms is None else self.base_ms / self.tried_ms


def loader(**arguments: Any) -> Change:
    """Of the DataLoader."""
    return Change(call="DataLoader", arguments=arguments)


def of_trainer(**arguments: Any) -> Change:
    """Of the Trainer."""
    return Change(call="Trainer", arguments=arguments)


def optimizer(**arguments: Any) -> Change:
    """Of the optimizer."""
    return Change(call="torch.optim.AdamW", arguments=arguments)


@fault
def adamw(setup: Setup, **settings: Any) -> None:
    """AdamW with settings in the place of plain SGD."""
    setup.model.optimizer = functools.partial(torch.optim.AdamW, **settings)


def _fit(kind: Kind, *faults: Fault, steps: int = 150) -> Fit:
    return Fit(kind=kind, faults=faults, steps=steps)


_WORKERS = (
    *((1, 0, 1), (1, 0, 2), (2, 0, 1), (2, 0, 2), (4, 0, 2), (10, 0, 2)),
    *((4, 1, 2), (10, 1, 2), (2, 1, 2), (10, 2, 4), (15, 1, 4), (4, 2, 4)),
    *((3, 0, 1), (3, 1, 3), (6, 0, 2), (8, 2, 4), (5, 2, 3), (20, 1, 4), (12, 0, 4), (2, 0, 4)),
)
"""Milliseconds of an item; workers before and after."""


def _of_workers() -> list[Setting]:
    found = []
    kinds: tuple[Kind, ...] = ("mlp", "conv", "transformer", "recurrent")
    for index, (ms, now, then) in enumerate(_WORKERS):
        for burns in (False, True) if ms <= 2 and now == 0 else (False,):
            kind = kinds[index % len(kinds)]
            faults = (slow_items(ms, burns=burns), *((workers(now),) if now else ()))
            found.append(
                Setting(
                    name=f"items of {ms} ms{' of CPU' if burns else ''}, {kind}: num_workers {now} -> {then}",
                    fit=_fit(kind, *faults, steps=max(60, min(200, 1500 // (ms * 32)))),
                    change=loader(num_workers=then, persistent_workers=True),
                )
            )
    return found


def _of_depth() -> list[Setting]:
    return [
        Setting(
            name=f"a batch of {ms} ms every {every}, {kind}: prefetch_factor 2 -> 8",
            fit=_fit(kind, rare_slow_items(ms, every_batches=every), workers(2), steps=200),
            change=loader(prefetch_factor=8),
        )
        for kind, ms, every in (("conv", 60.0, 12), ("transformer", 40.0, 10))
    ]


def _of_logging() -> list[Setting]:
    cases: tuple[tuple[Kind, int], ...] = (("mlp", 1), ("conv", 1), ("transformer", 2), ("recurrent", 5))
    return [
        Setting(
            name=f"20 values every {every} steps, {kind}: log_every_n_steps 50",
            fit=_fit(kind, many_values(20), csv_logger(every=every), steps=300),
            change=of_trainer(log_every_n_steps=50),
        )
        for kind, every in cases
    ]


def _of_torch() -> list[Setting]:
    kinds: tuple[Kind, ...] = ("mlp", "conv", "transformer", "recurrent")
    anomaly = [
        Setting(
            name=f"anomaly detection, {kind}: detect_anomaly=False",
            fit=_fit(kind, trainer(detect_anomaly=True)),
            change=of_trainer(detect_anomaly=False),
        )
        for kind in kinds
    ]
    fused = [
        Setting(
            name=f"AdamW(foreach=False), {kind}: fused=True",
            fit=_fit(kind, adamw(foreach=False)),
            change=optimizer(fused=True),
        )
        for kind in kinds
    ]
    bars = [
        Setting(
            name=f"a progress bar, {kind}: enable_progress_bar=False",
            fit=_fit(kind, trainer(enable_progress_bar=True), steps=300),
            change=of_trainer(enable_progress_bar=False),
        )
        for kind in kinds[:2]
    ]
    return [*anomaly, *fused, *bars]


def _of_nothing() -> list[Setting]:
    kinds: tuple[Kind, ...] = ("mlp", "conv", "transformer", "recurrent")
    settings = (
        ("benchmark on a CPU", of_trainer(benchmark=True), ()),
        ("foreach=False, which AdamW takes on a CPU anyway", optimizer(foreach=False), (adamw(),)),
    )
    found = [
        Setting(name=f"{what}, {kind}", fit=_fit(kind, *faults, steps=250), change=change, no_gain=True)
        for what, change, faults in settings
        for kind in kinds
    ]
    return [
        *found,
        Setting(
            name="prefetch_factor 2 -> 8 where batches are ready",
            fit=_fit("transformer", slow_batch(1), workers(1), steps=200),
            change=loader(prefetch_factor=8),
            no_gain=True,
        ),
        Setting(
            name="two workers where one is enough",
            fit=_fit("transformer", slow_batch(1), workers(1), steps=200),
            change=loader(num_workers=2),
            no_gain=True,
        ),
    ]


SETTINGS: tuple[Setting, ...] = (*_of_workers(), *_of_depth(), *_of_logging(), *_of_torch(), *_of_nothing())


@dataclass(frozen=True, kw_only=True)
class Search:
    """A fit whose best loader settings are looked for."""

    name: str
    fit: Fit


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the search chose, beside the best of all settings; in ms of the mean step."""

    name: str
    chosen: str
    chosen_ms: float
    """With it, in slices of time."""
    best: str
    best_ms: float
    unsure: float
    """Standard error of the ratio of both."""

    @property
    def off(self) -> float:
        """How much slower the choice is than the best."""
        return self.chosen_ms / self.best_ms - 1.0


SEARCHES: tuple[Search, ...] = (
    Search(name="items of 4 ms, mlp", fit=_fit("mlp", slow_items(4), steps=60)),
    Search(name="items of 1 ms of CPU, conv", fit=_fit("conv", slow_items(1, burns=True), steps=100)),
    Search(name="a batch of 40 ms every 10, recurrent", fit=_fit("recurrent", rare_slow_items(40, every_batches=10))),
    Search(name="batches of 1 ms, transformer", fit=_fit("transformer", slow_batch(1))),
)


def search(one: Search, seed: int, folder: Path) -> Found:
    """Run the fit with every setting in slices of time, let ``gpuprof try --input`` choose; all in fresh processes."""
    cpus = max(1, int(usable_cpus(affinity=len(affinity() or (0,)))))
    settings: list[dict[str, Any]] = [{"num_workers": 0}]
    for number in range(1, cpus + 1):
        for depth in (2, 4, 8):
            settings.append({"num_workers": number, "persistent_workers": True, "prefetch_factor": depth})
    step_s = _mean_ms(outcome_of(one.fit, folder / "report", seed)) / 1e3
    changes = [_with(loader(**setting)) for setting in settings]
    seconds = SLICES_S / 2 * len(settings)
    slices = each_in_slices(one.fit, changes, folder / "slices", seed, step_s=step_s, has_workers=True, seconds=seconds)
    steps = dict(zip(map(_loads_with, settings), slices, strict=True))
    plan = Plan(arms=loader_arms(cpus), seconds=SECONDS, seed=seed, loader=True)
    row = best(result(plan, tried(plan, one.fit, folder / "trial", seed)))
    chosen = _loads_with({} if row is None else row.arm.changes[0].arguments)
    fastest = min(steps, key=lambda setting: float(np.mean(np.log(steps[setting]))))
    found = paired(steps[fastest], steps[chosen])
    return Found(
        name=one.name,
        chosen="num_workers={}, prefetch_factor={}".format(*chosen),
        chosen_ms=found.after_ms,
        best="num_workers={}, prefetch_factor={}".format(*fastest),
        best_ms=found.before_ms,
        unsure=found.unsure,
    )


def _loads_with(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Workers, and batches that each prefetches."""
    number = arguments.get("num_workers", 0)
    return number, arguments.get("prefetch_factor", 2) if number else 0


def searches(repetition: int = 0) -> list[Job]:
    """One for each search."""
    return [
        Job(name=one.name, do=functools.partial(search, one, 1 + repetition), kind="search", limit_s=LIMIT_S)
        for one in SEARCHES
    ]


def jobs(settings: Sequence[Setting], repetition: int = 0) -> list[Job]:
    """One for each setting: both runs and the trial."""
    return [
        Job(name=one.name, do=functools.partial(measure, one, 1 + repetition), kind=one.kind, limit_s=LIMIT_S)
        for one in settings
    ]


def measure(setting: Setting, seed: int, folder: Path) -> Measured:
    """Run a fit, run it as it is and with the change in slices of time, then try the change; all in fresh processes."""
    told = outcome_of(setting.fit, folder / "report", seed)
    step_s, has_workers = _mean_ms(told) / 1e3, setting.change.call == "DataLoader"
    changes = None, _with(setting.change)
    achieved = paired(
        *each_in_slices(setting.fit, changes, folder / "slices", seed, step_s=step_s, has_workers=has_workers)
    )
    plan = Plan(arms=(Arm(name="the change", changes=(setting.change,)),), seconds=SECONDS, seed=seed)
    trial = result(plan, tried(plan, setting.fit, folder / "trial", seed))
    row = next((one for one in trial.tried if not one.arm.ceiling), None)
    base = trial.base_step_ms
    return Measured(
        name=setting.name,
        no_gain=setting.no_gain,
        before_ms=achieved.before_ms,
        after_ms=achieved.after_ms,
        unsure=achieved.unsure,
        expected=_expected(folder / "report", told, setting.change),
        base_ms=base,
        tried_ms=None if row is None else row.step_ms,
        lower_ms=None if row is None or base is None or row.speedup_upper is None else base / row.speedup_upper,
        upper_ms=None if row is None or base is None or not row.speedup_lower else base / row.speedup_lower,
        outcome="not tried" if row is None else row.outcome,
    )


def tried(plan: Plan, fit: Fit, folder: Path, seed: int) -> list[Event]:
    """Run a fit as a trial, in a process of its own.

    Args:
        plan: What to try.
        fit: What to run.
        folder: For its files; made here.
        seed: Of the fit.
    """
    folder.mkdir()
    (folder / PLAN_FILE).write_bytes(msgspec.json.encode(plan))

    def run() -> None:
        os.environ[TRIAL] = str(folder)
        attach(folder)
        with suppress(SystemExit):
            fit.run(folder, seed)

    in_own_process(run)
    lines = (folder / EVENTS_FILE).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Event) for line in lines]


def _with(change: Change) -> Callable[[Setup], None]:
    def apply(setup: Setup) -> None:
        if change.call.startswith("torch.optim."):
            setup.model.optimizer = functools.partial(torch.optim.AdamW, **change.arguments)
        else:
            as_advised(setup, change)

    return apply


def _expected(folder: Path, told: RunOutcome, change: Change) -> Expected | None:
    """Of the very change where that is a number of workers, else of the finding that advises it."""
    metrics = build(read_journal(folder / "gpuprof" / "rank0.jsonl"), [])
    state, workers = metrics.loading, change.arguments.get("num_workers")
    if isinstance(workers, int) and isinstance(state, Loading) and workers > state.num_workers:
        return with_workers(state.bursts or state, workers, metrics)
    advised = (f for f in told.findings if f.change is not None and f.change.arguments == change.arguments)
    return next((finding.expected for finding in advised), None)


def _mean_ms(told: RunOutcome) -> float:
    """Mean step of a run."""
    assert told.period_mean_ms is not None
    return told.period_mean_ms
