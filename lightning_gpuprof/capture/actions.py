"""Which of Lightning's actions are timed, and the slot that the time of each is charged to.

The names are those that Lightning gives to ``trainer.profiler.profile(name)``; where it defines its empty hooks decides
which of them hold code of the user (read in lightning and pytorch_lightning 2.6.6; names unchanged since 2.0).
"""

from typing import Any

import msgspec

from lightning_gpuprof.model.phases import Phase

FETCHES = frozenset({"train_dataloader_next", "val_next", "test_next", "predict_next"})
"""Ends of the actions around the fetch of a batch."""
ANNOTATED = "[annotate]"
"""Before the name of a region of the user's own, where actions and such regions differ by name only."""
RUN_EPOCH = "run_training_epoch"
SAVE_CHECKPOINT = "save_checkpoint"

PER_BATCH_MODULE_HOOKS = frozenset(
    {
        "on_train_batch_start",
        "on_train_batch_end",
        "on_before_zero_grad",
        "on_before_backward",
        "on_after_backward",
        "on_before_optimizer_step",
        "configure_gradient_clipping",
        "on_before_batch_transfer",
        "transfer_batch_to_device",
        "on_after_batch_transfer",
    }
)
"""Hooks that run in every step; where nobody overrides or configures one there is nothing in it to time."""

_MODULE_PHASES: dict[str, Phase] = {
    "optimizer_step": "optimizer",
    "optimizer_zero_grad": "zero_grad",
    "configure_gradient_clipping": "clip",
    "lr_scheduler_step": "optimizer",
    "on_before_batch_transfer": "h2d",
    "transfer_batch_to_device": "h2d",
    "on_after_batch_transfer": "h2d",
}
_STRATEGY_PHASES: dict[str, Phase] = {
    "batch_to_device": "h2d",
    "training_step": "forward",
    "validation_step": "forward",
    "test_step": "forward",
    "predict_step": "forward",
    "backward": "backward",
}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """How one action is timed.

    Attributes:
        phase: Phase of the time inside; ``None`` if the action itself is not timed.
        then: Phase of the unnamed time that follows the action on the same level; ``None`` = what it was before.
        counts: An optimizer step is completed when the action ends.
        callback: Whose hook it is: state key of a callback or class of the module; else empty.
        hook: Name of the hook, else empty.
    """

    phase: Phase | None
    then: Phase | None = None
    counts: bool = False
    callback: str = ""
    hook: str = ""


_UNTIMED = Action(phase=None)


def classify(action: str, *, manual: bool, overridden: frozenset[str]) -> Action:
    """Say how an action is timed.

    Args:
        action: Lightning's action name, e.g. ``[Callback]ModelCheckpoint{...}.on_train_batch_end``.
        manual: Manual optimization: there is no ``backward`` action, its hooks mark it.
        overridden: Names of the per-batch hooks in which something happens.

    Returns:
        The action's phase and what follows it.
    """
    owner, _, hook = action.rpartition(".")
    if action == SAVE_CHECKPOINT or hook == "on_save_checkpoint":
        return Action(phase="checkpoint", callback=_callback_key(owner), hook=hook)
    if owner.startswith("[Callback]"):
        return Action(phase="callbacks", callback=_callback_key(owner), hook=hook)
    if hook in FETCHES:
        return Action(phase="data_wait", hook=hook)
    if action == RUN_EPOCH:
        return Action(phase="loop")
    if action == "optimizer_step":
        return Action(phase="optimizer", counts=True)
    if owner.startswith("[Strategy]"):
        return _strategy_action(hook, manual=manual)
    if owner.startswith(("[LightningModule]", "[LightningDataModule]")):
        return _module_action(owner.partition("]")[2], hook, manual=manual, overridden=overridden)
    return _UNTIMED


def _strategy_action(hook: str, *, manual: bool) -> Action:
    phase = _STRATEGY_PHASES.get(hook)
    if phase is None:
        return _UNTIMED
    then: Phase | None = "optimizer" if phase == "backward" else None
    if hook == "training_step" and not manual:
        then = "forward"  # inside the closure the loss's own bookkeeping follows; other steps have no closure
    return Action(phase=phase, then=then, hook=hook)


def _module_action(owner: str, hook: str, *, manual: bool, overridden: frozenset[str]) -> Action:
    then: Phase | None = None
    if hook == "on_train_batch_end":
        then = "logging"
    elif manual and hook == "on_before_backward":
        then = "backward"
    elif manual and hook == "on_after_backward":
        then = "forward"
    elif not manual and hook == "on_before_optimizer_step":
        then = "optimizer"
    phase = _MODULE_PHASES.get(hook, "callbacks")
    if hook in PER_BATCH_MODULE_HOOKS and hook not in overridden:
        return Action(phase=None, then=then, hook=hook)
    # A hook of the module around the batch is listed beside the callbacks' hooks, under the module's class.
    callback = owner if phase == "callbacks" else ""
    return Action(phase=phase, then=then, counts=hook == "optimizer_step", callback=callback, hook=hook)


def _callback_key(owner: str) -> str:
    return owner.removeprefix("[Callback]") if owner.startswith("[Callback]") else ""


_BASE_CALLBACK_MODULES = ("lightning.pytorch.callbacks.callback", "pytorch_lightning.callbacks.callback")
_BASE_MODULE_PACKAGES = ("lightning.pytorch.core", "pytorch_lightning.core")


def profiles_nothing(profiler: object) -> bool:
    """Whether it is the profiler that Lightning puts where the user wants none."""
    return type(profiler).__name__ == "PassThroughProfiler"


def does_nothing(trainer: Any, state_key: str, hook: str) -> bool:
    """Whether every callback with this key has the hook from Lightning's empty base class.

    Args:
        trainer: Has the callbacks.
        state_key: ``state_key`` of the callback.
        hook: Name of the hook.
    """
    owners = [callback for callback in trainer.callbacks if callback.state_key == state_key]
    modules = [getattr(getattr(owner, hook, None), "__module__", "") for owner in owners]
    return bool(owners) and all(m in _BASE_CALLBACK_MODULES for m in modules)


def overridden_hooks(trainer: Any, module: object) -> frozenset[str]:
    """Per-batch hooks in which something happens: the user wrote them, or asked for gradient clipping.

    Args:
        trainer: Has the setting of gradient clipping.
        module: The LightningModule.

    Returns:
        Names out of :data:`PER_BATCH_MODULE_HOOKS`, of the module and of the trainer's datamodule.
    """
    found = {"configure_gradient_clipping"} if getattr(trainer, "gradient_clip_val", None) is not None else set()
    for owner in (module, getattr(trainer, "datamodule", None)):
        for hook in PER_BATCH_MODULE_HOOKS:
            function = getattr(owner, hook, None)
            defined_in = getattr(function, "__module__", "") or ""
            if function is not None and not defined_in.startswith(_BASE_MODULE_PACKAGES):
                found.add(hook)
    return frozenset(found)
