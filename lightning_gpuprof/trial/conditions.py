"""Whether a run was made as the program is now: otherwise its advice is about another training."""

from collections.abc import Mapping
from typing import Any

from lightning_gpuprof.model.conditions import FACTS
from lightning_gpuprof.model.journal import Value

_CHANGED_BY_A_TRIAL = ("callbacks", "loggers", "max_", "limit_", "num_", "val_", "check", "profiler")
"""Beginnings of names of the Trainer's arguments that a trial changes, that say how long training goes on, or that are
about validation and checkpoints."""


def _counts(name: str) -> bool:
    group, _, fact = name.partition(".")
    if group == "trainer":
        return not fact.startswith(_CHANGED_BY_A_TRIAL)
    return group in ("loader", "model", "flags", "torch", "device") and fact != "dataset_length"


COMPARED = frozenset(fact.name for fact in FACTS if fact.hashed and fact.role != "label" and _counts(fact.name))
"""Facts that decide what advice is given: of loader, Trainer, model, device and torch."""


def settings(conditions: Mapping[str, Value]) -> dict[str, Value]:
    """Those of the facts of a run that must be the same."""
    return {name: value for name, value in conditions.items() if name in COMPARED}


def settings_of(trainer: Any) -> dict[str, Value]:
    """The same of a trainer in its fit, which has its loaders."""
    from lightning_gpuprof.capture.conditions.collect import collect

    return settings(collect(trainer, trainer.lightning_module, trainer.train_dataloader))


def differences(then: Mapping[str, Value], now: Mapping[str, Value]) -> list[str]:
    """What is not the same.

    Args:
        then: Settings of a run.
        now: Settings of the program.

    Returns:
        ``num_workers was 0 and is 4 now`` for each, in the order of ``then``; a fact that only one has is no
        difference.
    """
    return [
        f"{name.partition('.')[2]} was {then[name]} and is {now[name]} now"
        for name in then
        if name in now and then[name] != now[name]
    ]
