"""Cases: ``validate``, ``test`` and ``predict`` on their own, whose steps are batches of the evaluation loop."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from planted_loops.case import Case
from planted_loops.places import Place
from planted_loops.planting import Stream, loader, planted_module
from planted_loops.run import Run

HOOK_WORDS = {"validate": "validation", "test": "test", "predict": "predict"}
BATCHES = 8


def stage(run: Run, name: str, data: Callable[[Run], Any]) -> None:
    trainer, module, batches = run.trainer(), planted_module(run.naps), data(run)
    run.measure(trainer, lambda: getattr(trainer, name)(module, batches), steps=BATCHES)


def sized(run: Run) -> Any:
    return loader(run.naps, BATCHES)


def unsized(run: Run) -> Any:
    return DataLoader(Stream(BATCHES, run.naps), batch_size=1)


def two_loaders(run: Run) -> Any:
    return [loader(run.naps, BATCHES - 3), loader(run.naps, 3)]


def fit_then_all(run: Run) -> None:
    """One trainer through all stages."""
    module = planted_module(run.naps)
    trainer = run.fit(module, steps=10)
    for name in HOOK_WORDS:
        work = partial(getattr(trainer, name), module, loader(run.naps, BATCHES))
        run.measure(trainer, work, steps=BATCHES)


def naps_of(name: str) -> dict[str, float]:
    word = HOOK_WORDS[name]
    return {
        "dataset": 0.02,
        f"{word}_step": 0.015,
        "module.on_after_batch_transfer": 0.01,
        **{f"{owner}.on_{word}_{hook}": nap for owner, hook, nap in _HOOKS},
    }


def places_of(name: str) -> dict[str, Place]:
    word = HOOK_WORDS[name]
    places = {
        "dataset": _in_step(name, "data_wait"),
        "first fetch": Place("setup", "loop"),
        f"{word}_step": _in_step(name, "forward"),
        "module.on_after_batch_transfer": _in_step(name, "h2d"),
    }
    for owner, hook, _ in _HOOKS:
        row = f"{'PlantedModule' if owner == 'module' else 'PlantedCallback'}.on_{word}_{hook}"
        part = _AROUND.get(hook, name)
        places[f"{owner}.on_{word}_{hook}"] = Place(part, "callbacks", "callbacks" if part == name else "", row)
    return {f"{name} {place}": where for place, where in places.items()}


def _in_step(stage: str, phase: str) -> Place:
    return Place(stage, phase, phase)


_HOOKS = (
    ("callback", "start", 0.06),
    ("module", "epoch_start", 0.05),
    ("callback", "batch_start", 0.012),
    ("module", "batch_end", 0.009),
    ("callback", "epoch_end", 0.07),
    ("module", "end", 0.08),
)
_AROUND = {"start": "setup", "epoch_start": "setup", "epoch_end": "teardown", "end": "teardown"}
"""Hooks before the first and after the last batch: the part that they belong to."""

CASES = (
    *(
        Case(name=f"{name} alone", do=partial(stage, name=name, data=sized), naps=naps_of(name), places=places_of(name))
        for name in HOOK_WORDS
    ),
    Case(
        name="validate alone, unsized iterable",
        do=partial(stage, name="validate", data=unsized),
        naps={"dataset": 0.02, "first fetch": 0.1, "validation_step": 0.01},
        places=places_of("validate"),
    ),
    Case(
        name="test alone, two loaders",
        do=partial(stage, name="test", data=two_loaders),
        naps={"dataset": 0.02, "test_step": 0.01},
        places=places_of("test"),
    ),
    Case(
        name="predict alone, unsized iterable",
        do=partial(stage, name="predict", data=unsized),
        naps={"dataset": 0.02, "first fetch": 0.1, "predict_step": 0.01},
        places=places_of("predict"),
    ),
    Case(
        name="one trainer through all stages",
        do=fit_then_all,
        naps={
            "dataset": 0.012,
            "training_step": 0.010,
            "validation_step": 0.015,
            "test_step": 0.02,
            "predict_step": 0.025,
        },
        places={place: where for name in HOOK_WORDS for place, where in places_of(name).items()},
    ),
)
