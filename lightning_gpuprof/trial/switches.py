"""How a change is made while training runs, and taken back: a setting of torch, of the trainer, of an optimizer.

A change that is read only when the process starts, or that means another run (checkpoints, validation), has no switch.
"""

import ast
import gc
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
from typing import Any, TypeAlias

import msgspec
import torch
from torch.utils._pytree import tree_map_only

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.trial import Arm
from lightning_gpuprof.trial.arms import LOGGER_DOES_NOT_RUN, NEEDS_A_HUMAN, rarer_hook
from lightning_gpuprof.trial.harmless import do_nothing, lightning_package

_NO_VALIDATION = "validation is not run in a trial: its time is outside the steps"


Undo: TypeAlias = Callable[[], object]
Switch: TypeAlias = Callable[[], Undo]
"""Makes a change and returns what takes it back; called each time that an arm's turn comes."""


def _attribute(owner: Any, name: str, value: Any) -> Switch:
    def on() -> Undo:
        described = hasattr(inspect.getattr_static(type(owner), name, None), "__set__")
        is_own = name in vars(owner) or described
        before = getattr(owner, name) if is_own else None
        setattr(owner, name, value)
        return partial(setattr, owner, name, before) if is_own else partial(delattr, owner, name)

    return on


def _setting(read: Callable[[], Any], write: Callable[[Any], Any], value: Any) -> Switch:
    def on() -> Undo:
        before = read()
        write(value)
        return partial(write, before)

    return on


def _optimizer_flags(optimizers: Sequence[torch.optim.Optimizer], flags: Mapping[str, Any]) -> Switch:
    both = {"fused": None, "foreach": None} | dict(flags)

    def on() -> Undo:
        groups = [one.param_groups for one in optimizers]
        before = [[{name: one[name] for name in both if name in one} for one in each] for each in groups]
        _set_flags(optimizers, [[{name: both[name] for name in one} for one in each] for each in before])
        return partial(_set_flags, optimizers, before)

    return on


def _set_flags(optimizers: Sequence[torch.optim.Optimizer], values: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    for one, groups in zip(optimizers, values, strict=True):
        for group, flags in zip(one.param_groups, groups, strict=True):
            group.update(flags)
            on_device = group.get("fused") or group.get("capturable")
            for parameter in group["params"]:
                step = one.state[parameter].get("step") if parameter in one.state else None
                if isinstance(step, torch.Tensor):  # fused and capturable kernels count steps on the device
                    one.state[parameter]["step"] = step.to(parameter.device if on_device else "cpu")


def _compiled(module: Any, options: Mapping[str, Any]) -> Switch:
    """``training_step`` through torch.compile, as Lightning does it for a compiled module."""
    compiled = cache(lambda: torch.compile(module.training_step, **options))

    def on() -> Undo:
        module.training_step = compiled()
        return partial(delattr, module, "training_step")

    return on


def _channels_last(module: Any) -> Switch:
    def on() -> Undo:
        module.to(memory_format=torch.channels_last)
        return partial(module.to, memory_format=torch.contiguous_format)

    return on


def _channels_last_batch(strategy: Any) -> Switch:
    """Images of a batch in channels_last, after what the user does with it."""
    to_device = strategy.batch_to_device

    def converted(*args: Any, **kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, _image_in_channels_last, to_device(*args, **kwargs))

    return _attribute(strategy, "batch_to_device", converted)


def _image_in_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """All that an arm changes, but its loader."""

    switches: tuple[Switch, ...] = ()
    loader: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Arguments of the DataLoader that it changes."""


def switched(arm: Arm, trainer: Any) -> Switched:
    """What an arm sets.

    Args:
        arm: It.
        trainer: In the middle of a fit.

    Returns:
        Nothing of it is set yet.

    Raises:
        TrialError: A change has no switch; why not.
    """
    if arm.ceiling == "around the model":
        return Switched(switches=_nothing_around(trainer))
    switches: list[Switch] = []
    loader: dict[str, Any] = {}
    for change in arm.changes:
        if change.inside == "val_dataloader":
            raise TrialError(_NO_VALIDATION)
        if change.call == "DataLoader":
            loader |= change.arguments
        elif change.arguments:
            switches += _call_switches(change, trainer)
        for line in change.add:
            switches += _line_switches(line, trainer)
        for line in change.remove:
            if _sets(line) not in [_sets(other) for other in change.add]:
                switches += _removal_switches(line, trainer)
    return Switched(switches=tuple(switches), loader=loader)


def _call_switches(change: Change, trainer: Any) -> list[Switch]:
    if change.call == "Trainer":
        return [one for name, value in change.arguments.items() for one in _trainer_switches(trainer, name, value)]
    if change.call.startswith("torch.optim."):
        other = sorted(set(change.arguments) - {"fused", "foreach"})
        if other:
            raise TrialError(f"{change.call}({other[0]}=...) needs another optimizer: compare two runs")
        optimizers = [getattr(one, "_optimizer", one) for one in trainer.strategy.optimizers]
        for name in change.arguments:
            if lacking := [one for one in optimizers if any(name not in group for group in one.param_groups)]:
                raise TrialError(f"{type(lacking[0]).__name__} has no {name}")
        return [_optimizer_flags(optimizers, change.arguments)]
    if change.call == "torch.compile":
        return [_compiled(trainer.lightning_module, change.arguments)]
    if change.call == "ModelCheckpoint":
        raise TrialError("checkpoints are written between steps, and a trial writes none")
    if change.call.endswith("Strategy"):
        raise TrialError(f"{change.call} is made before the training: compare two runs")
    if "." in change.call:
        raise TrialError(NEEDS_A_HUMAN)
    named = [one for one in trainer.callbacks if type(one).__name__ == change.call]
    if not named:
        raise TrialError(f"there is no {change.call} in this training")
    found: list[Switch] = []
    for name, value in change.arguments.items():
        attribute = next((own for own in (f"_{name}", name) if own in vars(named[0])), None)
        if attribute is None:
            raise TrialError(f"{name} of {change.call} cannot be changed while training runs")
        found.append(_attribute(named[0], attribute, value))
    return found


def _trainer_switches(trainer: Any, name: str, value: Any) -> tuple[Switch, ...]:
    if name == "enable_progress_bar" and not value:
        return _without_bar(trainer)
    return (_trainer_switch(trainer, name, value),)


def _trainer_switch(trainer: Any, name: str, value: Any) -> Switch:
    if name in ("log_every_n_steps", "logger") and any(type(one).__name__ == "DummyLogger" for one in trainer.loggers):
        raise TrialError(LOGGER_DOES_NOT_RUN)
    if name in ("log_every_n_steps", "gradient_clip_val", "gradient_clip_algorithm"):
        return _attribute(trainer, name, value)
    if name == "benchmark":
        return _attribute(torch.backends.cudnn, "benchmark", value)
    if name == "detect_anomaly":
        return _setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, value)
    if name == "precision":
        return _attribute(trainer.strategy, "_precision_plugin", _precision(trainer, str(value)))
    if name == "logger" and not value:
        return _attribute(trainer, "loggers", [])
    if name in ("limit_val_batches", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"):
        raise TrialError(_NO_VALIDATION)
    raise TrialError(f"Trainer({name}=...) is read when the trainer is made: compare two runs")


def _precision(trainer: Any, value: str) -> Any:
    """A precision plugin of the trainer's own Lightning."""
    plugins = sys.modules.get(f"{lightning_package(trainer)}.plugins.precision")
    now = type(trainer.strategy.precision_plugin).__name__
    if plugins is None or now not in ("Precision", "MixedPrecision"):
        raise TrialError(f"from {now} to {value} the weights have to be converted: compare two runs")
    device = trainer.strategy.root_device.type
    if value in ("bf16-mixed", "16-mixed"):
        return plugins.MixedPrecision(value, device)
    if value in ("32", "32-true"):
        return plugins.Precision()
    raise TrialError(f"precision={value!r} converts the weights: compare two runs")


def _without_bar(trainer: Any) -> tuple[Switch, ...]:
    """No progress bar: it stays, since the thread that draws Rich's asks for it, but nothing is drawn after a batch."""
    bar = trainer.progress_bar_callback
    hooks = () if bar is None else ("on_train_batch_start", "on_train_batch_end")
    return tuple(_attribute(bar, name, do_nothing) for name in hooks)


def _rarer(trainer: Any, owner: str, hook: str, every: int) -> Switch:
    """A hook of a callback, or of the module, that works in one of so many steps."""
    if any(stage in hook for stage in ("validation", "test", "predict")):
        raise TrialError(f"{hook} does not run in a trial, which only trains")
    running = (*trainer.callbacks, trainer.lightning_module)
    found = next((one for one in running if type(one).__name__ == owner and hasattr(one, hook)), None)
    if found is None:
        raise TrialError(f"there is no {owner}.{hook} in this training")
    method, calls = getattr(found, hook), itertools.count()

    @wraps(method)
    def now_and_then(*args: Any, **kwargs: Any) -> Any:
        return None if next(calls) % every else method(*args, **kwargs)

    return _attribute(found, hook, now_and_then)


def _nothing_around(trainer: Any) -> tuple[Switch, ...]:
    """No callbacks, no progress bar, no loggers, and ``self.log`` does nothing."""
    module, bar = trainer.lightning_module, trainer.progress_bar_callback
    return (
        _attribute(trainer, "callbacks", [] if bar is None else [bar]),
        *_without_bar(trainer),
        _attribute(trainer, "loggers", []),
        _attribute(module, "log", do_nothing),
        _attribute(module, "log_dict", do_nothing),
    )


_SETTERS: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch.set_float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch.set_num_threads": (torch.get_num_threads, torch.set_num_threads),
    "torch.autograd.set_detect_anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "torch.backends.cuda.enable_flash_sdp": (
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.enable_flash_sdp,
    ),
    "torch.backends.cuda.enable_mem_efficient_sdp": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    "gc.set_threshold": (
        gc.get_threshold,
        lambda values: gc.set_threshold(*values) if isinstance(values, tuple) else gc.set_threshold(values),
    ),
}
"""Calls with arguments: how the value is read, and how it is set."""

_TOGGLES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any], bool]] = {
    "gc.freeze": (lambda: gc.get_freeze_count() > 0, lambda on: (gc.freeze if on else gc.unfreeze)(), True),
    "gc.disable": (gc.isenabled, lambda on: (gc.enable if on else gc.disable)(), False),
}
"""Calls without arguments: how the state is read, how it is set, and what the call sets."""

_REPEATED: Mapping[str, tuple[Any, str]] = {
    "gc.collect": (gc, "collect"),
    "torch.cuda.empty_cache": (torch.cuda, "empty_cache"),
}
"""Calls of the user's code that can be left out while it runs."""

_PROCESS_LINE = re.compile(r"(export )?[A-Z][A-Z0-9_]*=")
_CHANNELS_LAST = re.compile(r"(?:[\w.]+ = )?(self\.model|model|self|x)\.to\(memory_format=torch\.channels_last\)")
_TRAINER_LINE = re.compile(r"Trainer\(|\w*Strategy\(")


def _sets(line: str) -> str:
    """What a line calls or sets: ``torch.set_num_threads``, ``torch.backends.cudnn.allow_tf32``."""
    return line.partition("(")[0].partition("=")[0].strip()


def _removal_switches(line: str, trainer: Any) -> list[Switch]:
    """A line of code that goes: a callback, a logger, a call that is made again and again."""
    name = _sets(line)
    if any(type(one).__name__ == name for one in trainer.callbacks):
        return [_attribute(trainer, "callbacks", [one for one in trainer.callbacks if type(one).__name__ != name])]
    if any(type(one).__name__ == name for one in trainer.loggers):
        return [_attribute(trainer, "loggers", [one for one in trainer.loggers if type(one).__name__ != name])]
    if any(vars(one).get("in_place_of") == name for one in trainer.loggers):
        raise TrialError(LOGGER_DOES_NOT_RUN)
    if name in _REPEATED:
        return [_attribute(*_REPEATED[name], do_nothing)]
    if _PROCESS_LINE.match(line):
        raise TrialError(f"{name} is read when the process starts: compare two runs")
    if _TRAINER_LINE.match(line):
        raise TrialError(f"{line} is read when the trainer is made: compare two runs")
    if line.endswith("(...)"):
        running = ", ".join(sorted({type(one).__name__ for one in (*trainer.callbacks, *trainer.loggers)}))
        raise TrialError(f"nothing that runs now is called {name}; there are {running or 'no callbacks'}")
    raise TrialError(f"a line of your code has to go: {line.strip()}")


def _line_switches(line: str, trainer: Any) -> list[Switch]:
    """A line of code that comes."""
    text = line.partition("  #")[0].strip()
    if text.startswith(("def ", "import ", "from ")):
        return []
    if rarer := rarer_hook(line):
        return [_rarer(trainer, *rarer)]
    if _PROCESS_LINE.match(text):
        raise TrialError(f"{text.removeprefix('export ')} is read when the process starts: compare two runs")
    if _TRAINER_LINE.match(text):
        raise TrialError(f"{text} is read when the trainer is made: compare two runs")
    try:
        [statement] = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise TrialError(NEEDS_A_HUMAN) from None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = ast.unparse(statement.targets[0]), statement.value
        if target.startswith("torch.backends.") and isinstance(value, ast.Constant):
            owner, _, name = target.rpartition(".")
            flags = _dotted(owner)  # modules of torch with a ``__getattr__`` of their own
            return [_setting(partial(getattr, flags, name), partial(setattr, flags, name), value.value)]
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if called == "torch.compile" and isinstance(value, ast.Call):
            options = {one.arg: ast.literal_eval(one.value) for one in value.keywords if one.arg}
            return [_compiled(trainer.lightning_module, options)]
    if (found := _CHANNELS_LAST.fullmatch(text)) is not None:
        if found[1] == "x":
            return [_channels_last_batch(trainer.strategy)]
        return [_channels_last(trainer.lightning_module)]
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        name = ast.unparse(call.func)
        if name in _SETTERS and call.args:
            read, write = _SETTERS[name]
            values = [_value(argument) for argument in call.args]
            return [_setting(read, write, values[0] if len(values) == 1 else tuple(values))]
        if name in _TOGGLES:
            return [_setting(*_TOGGLES[name])]
    raise TrialError(NEEDS_A_HUMAN)


def _value(node: ast.expr) -> Any:
    """A literal, or so many times the collector's threshold."""
    if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "gc.get_threshold()[0]":
        return ast.literal_eval(node.left) * gc.get_threshold()[0]
    return ast.literal_eval(node)


def _dotted(name: str) -> Any:
    first, *rest = name.split(".")
    found: Any = sys.modules[first]
    for one in rest:
        found = getattr(found, one)
    return found
