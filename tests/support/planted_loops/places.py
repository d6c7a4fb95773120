"""Where each planted sleep is to be found in a report: part of the wall time, phase of the step, row of callbacks."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Place:
    """Where time is to be found.

    Attributes:
        part: Part of the wall time.
        own: What it is in its own loop, which the ledger says: a validation has a fetch and a forward pass, too.
        phase: Phase of the steps; empty if it is outside of the steps.
        row: ``name.hook`` of a row of callbacks; empty if the time has no such row.
    """

    part: str
    own: str
    phase: str = ""
    row: str = ""


def in_step(phase: str, row: str = "") -> Place:
    """In the steps of a training."""
    return Place("train", phase, phase, row)


PLACES = {
    "dataset": in_step("data_wait"),
    "collate": in_step("data_wait"),
    "worker": in_step("data_wait"),
    "first fetch": Place("setup", "loop"),
    "later first fetch": Place("epoch_gap", "data_wait"),
    "iter": Place("setup", "loop"),
    "later iter": Place("epoch_gap", "loop"),
    "training_step": in_step("forward"),
    "backward": in_step("backward"),
    "optimizer": in_step("optimizer"),
    "zero_grad": in_step("zero_grad"),
    "clip": in_step("clip"),
    "scheduler": in_step("optimizer"),
    "logger": in_step("logging"),
    "save": Place("checkpoint", "checkpoint", "checkpoint"),
    "val_dataset": Place("validation", "data_wait", "validation"),
    "validation_step": Place("validation", "forward", "validation"),
    "sanity val_dataset": Place("sanity", "data_wait"),
    "sanity validation_step": Place("sanity", "forward"),
}
"""Places that a fit has wherever it is planted. ``module.X``, ``callback.X`` and ``datamodule.X`` are hooks; see
:func:`place_of`."""

_TRANSFER_HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
_OWNERS = {"module": "PlantedModule", "callback": "PlantedCallback", "datamodule": "PlantedData"}
_PARTS_OF_HOOKS = {
    "prepare_data": "setup",
    "setup": "setup",
    "configure_optimizers": "setup",
    "train_dataloader": "setup",
    "on_fit_start": "setup",
    "on_train_start": "setup",
    "on_train_epoch_start": "setup",
    "later on_train_epoch_start": "epoch_gap",
    "on_train_epoch_end": "epoch_gap",
    "on_train_end": "teardown",
    "on_fit_end": "teardown",
    "teardown": "teardown",
}
_UNNAMED = {"datamodule.prepare_data", "datamodule.setup"}
"""Called before any callback hears of the fit: in the set-up, but not by name."""


def place_of(name: str) -> Place:
    """Where a sleep at a planted place is to be found in a fit.

    Raises:
        KeyError: No such place is known.
    """
    if name.startswith("trial "):  # of a tuner, before the training
        return replace(place_of(name.removeprefix("trial ")), part="setup", phase="")
    if name in PLACES:
        return PLACES[name]
    owner, _, hook = name.partition(".")
    if name in _UNNAMED:
        return Place("setup", "loop")
    row = f"{_OWNERS[owner]}.{hook.removeprefix('later ')}"
    if hook in _PARTS_OF_HOOKS:
        return Place(_PARTS_OF_HOOKS[hook], "callbacks", row=row)
    if hook in _TRANSFER_HOOKS:
        return in_step("h2d")
    if "validation" in hook:
        return Place("validation", "callbacks", "validation", row)
    return in_step("callbacks", row)
