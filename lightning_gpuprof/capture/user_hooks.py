"""Which hooks hold code of the user: what is empty need not be timed.

Knows where Lightning defines its empty hooks (read in lightning and pytorch_lightning 2.6.6).
"""

from __future__ import annotations

from typing import Any

from lightning_gpuprof.capture.actions import PER_BATCH_MODULE_HOOKS

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
    """
    found = {"configure_gradient_clipping"} if getattr(trainer, "gradient_clip_val", None) is not None else set()
    for owner in (module, getattr(trainer, "datamodule", None)):
        for hook in PER_BATCH_MODULE_HOOKS:
            function = getattr(owner, hook, None)
            defined_in = getattr(function, "__module__", "") or ""
            if function is not None and not defined_in.startswith(_BASE_MODULE_PACKAGES):
                found.add(hook)
    return frozenset(found)
