"""How a change is made while training runs, and taken back: a setting of torch, of the trainer, of an optimizer.

A change that is read only when the process starts, or that means another run (checkpoints, validation), has no switch.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.trial import Arm
from lightning_gpuprof.trial.harmless import package_of

_ABSENT = object()
_LOGGER_DOES_NOT_RUN = "your logger does not run in a trial, since it could send something"
_NO_VALIDATION = "validation is not run in a trial: its time is outside the steps"


class Switch(Protocol):
    """What is on while an arm runs."""

    def on(self) -> None:
        """Before its steps."""

    def off(self) -> None:
        """After them: all is as it was."""


@dataclass
class Attribute:
    """An attribute of an object."""

    owner: Any
    name: str
    value: Any
    _before: Any = _ABSENT

    def on(self) -> None:
        """See :class:`Switch`."""
        described = hasattr(inspect.getattr_static(type(self.owner), self.name, None), "__set__")
        own = self.name in vars(self.owner) or described
        self._before = getattr(self.owner, self.name) if own else _ABSENT
        setattr(self.owner, self.name, self.value)

    def off(self) -> None:
        """See :class:`Switch`."""
        if self._before is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._before)


@dataclass
class Setting:
    """A value with a function that reads it and one that sets it."""

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    value: Any
    _before: Any = None

    def on(self) -> None:
        """See :class:`Switch`."""
        self._before = self.read()
        self.write(self.value)

    def off(self) -> None:
        """See :class:`Switch`."""
        self.write(self._before)


@dataclass
class OptimizerFlags:
    """``fused`` or ``foreach`` of optimizers."""

    optimizers: Sequence[torch.optim.Optimizer]
    flags: Mapping[str, Any]
    _before: list[list[dict[str, Any]]] = field(default_factory=list)

    def on(self) -> None:
        """See :class:`Switch`."""
        both = {"fused": None, "foreach": None} | dict(self.flags)
        groups = [one.param_groups for one in self.optimizers]
        self._before = [[{name: one[name] for name in both if name in one} for one in each] for each in groups]
        self._set([[{name: both[name] for name in one} for one in each] for each in self._before])

    def off(self) -> None:
        """See :class:`Switch`."""
        self._set(self._before)

    def _set(self, values: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        for one, groups in zip(self.optimizers, values, strict=True):
            for group, flags in zip(one.param_groups, groups, strict=True):
                group.update(flags)
                on_device = group.get("fused") or group.get("capturable")
                for parameter in group["params"]:
                    step = one.state[parameter].get("step") if parameter in one.state else None
                    if isinstance(step, torch.Tensor):  # the count of steps is where this way looks for it
                        one.state[parameter]["step"] = step.to(parameter.device if on_device else "cpu")


@dataclass
class Compiled:
    """``training_step`` through torch.compile, as Lightning does it for a compiled module."""

    module: Any
    options: Mapping[str, Any]
    _compiled: Any = None

    def on(self) -> None:
        """See :class:`Switch`."""
        if self._compiled is None:
            self._compiled = torch.compile(self.module.training_step, **self.options)
        self.module.training_step = self._compiled

    def off(self) -> None:
        """See :class:`Switch`."""
        del self.module.training_step


@dataclass
class ChannelsLast:
    """The model's weights in another memory format."""

    module: torch.nn.Module

    def on(self) -> None:
        """See :class:`Switch`."""
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def off(self) -> None:
        """See :class:`Switch`."""
        self.module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


@dataclass(frozen=True, kw_only=True)
class Switched:
    """All that an arm changes, but its loader."""

    switches: tuple[Switch, ...] = ()
    loader: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the DataLoader that it changes."""


def switched(arm: Arm, trainer: Any) -> Switched:
    """What an arm sets.

    Args:
        arm: It.
        trainer: In the middle of a fit.

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
            switches += _of_call(change, trainer)
        for line in change.add:
            switches += _of_line(line, trainer)
        for line in change.remove:
            if _sets(line) not in [_sets(other) for other in change.add]:
                switches += _of_removed(line, trainer)
    return Switched(switches=tuple(switches), loader=loader)


def _of_call(change: Change, trainer: Any) -> list[Switch]:
    if change.call == "Trainer":
        return [_of_trainer(trainer, name, value) for name, value in change.arguments.items()]
    if change.call.startswith("torch.optim."):
        other = sorted(set(change.arguments) - {"fused", "foreach"})
        if other:
            raise TrialError(f"{change.call}({other[0]}=...) needs another optimizer: compare two runs")
        optimizers = _optimizers(trainer)
        for name in change.arguments:
            if lacking := [one for one in optimizers if any(name not in group for group in one.param_groups)]:
                raise TrialError(f"{type(lacking[0]).__name__} has no {name}")
        return [OptimizerFlags(optimizers, change.arguments)]
    if change.call == "torch.compile":
        return [Compiled(trainer.lightning_module, change.arguments)]
    if change.call == "ModelCheckpoint":
        raise TrialError("checkpoints are written between steps, and a trial writes none")
    named = [one for one in trainer.callbacks if type(one).__name__ == change.call]
    if not named:
        raise TrialError(f"nothing that runs now is called {change.call}")
    found: list[Switch] = []
    for name, value in change.arguments.items():
        attribute = next((own for own in (f"_{name}", name) if own in vars(named[0])), None)
        if attribute is None:
            raise TrialError(f"{change.call} keeps no {name} that can be changed while it runs")
        found.append(Attribute(named[0], attribute, value))
    return found


def _of_trainer(trainer: Any, name: str, value: Any) -> Switch:
    if name in ("log_every_n_steps", "logger") and any(type(one).__name__ == "DummyLogger" for one in trainer.loggers):
        raise TrialError(_LOGGER_DOES_NOT_RUN)
    if name in ("log_every_n_steps", "gradient_clip_val", "gradient_clip_algorithm"):
        return Attribute(trainer, name, value)
    if name == "benchmark":
        return Attribute(torch.backends.cudnn, "benchmark", value)
    if name == "detect_anomaly":
        return Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, value)
    if name == "precision":
        return Attribute(trainer.strategy, "_precision_plugin", _precision(trainer, str(value)))
    if name == "enable_progress_bar" and not value:
        return _without(trainer, lambda one: one is trainer.progress_bar_callback)
    if name == "logger" and not value:
        return Attribute(trainer, "loggers", [])
    if name in ("limit_val_batches", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"):
        raise TrialError(_NO_VALIDATION)
    raise TrialError(f"Trainer({name}=...) is read when the trainer is made: compare two runs")


def _precision(trainer: Any, value: str) -> Any:
    """A precision plugin of the trainer's own Lightning."""
    plugins = sys.modules.get(f"{package_of(trainer)}.plugins.precision")
    now = type(trainer.strategy.precision_plugin).__name__
    if plugins is None or now not in ("Precision", "MixedPrecision"):
        raise TrialError(f"from {now} to {value} the weights have to be converted: compare two runs")
    device = trainer.strategy.root_device.type
    if value in ("bf16-mixed", "16-mixed"):
        return plugins.MixedPrecision(value, device)
    if value in ("32", "32-true"):
        return plugins.Precision()
    raise TrialError(f"precision={value!r} converts the weights: compare two runs")


def _optimizers(trainer: Any) -> list[torch.optim.Optimizer]:
    return [getattr(one, "_optimizer", one) for one in trainer.strategy.optimizers]


def _without(trainer: Any, chosen: Callable[[Any], bool]) -> Switch:
    return Attribute(trainer, "callbacks", [one for one in trainer.callbacks if not chosen(one)])


def _nothing_around(trainer: Any) -> tuple[Switch, ...]:
    """No callbacks, no loggers, and ``self.log`` does nothing; a progress bar's own thread still asks for the bar."""
    module, bar = trainer.lightning_module, trainer.progress_bar_callback
    hooks = [name for name in ("on_train_batch_start", "on_train_batch_end") if bar is not None]
    return (
        Attribute(trainer, "callbacks", [] if bar is None else [bar]),
        *(Attribute(bar, name, _nothing) for name in hooks),
        Attribute(trainer, "loggers", []),
        Attribute(module, "log", _nothing),
        Attribute(module, "log_dict", _nothing),
    )


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _set_threshold(values: int | tuple[int, ...]) -> None:
    gc.set_threshold(*(values if isinstance(values, tuple) else (values,)))


def _set_collector(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _set_frozen(on: bool) -> None:
    (gc.freeze if on else gc.unfreeze)()


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
    "gc.set_threshold": (gc.get_threshold, _set_threshold),
}
"""Calls with arguments: how the value is read, and how it is set."""

_TOGGLES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any], bool]] = {
    "gc.freeze": (lambda: gc.get_freeze_count() > 0, _set_frozen, True),
    "gc.disable": (gc.isenabled, _set_collector, False),
}
"""Calls without arguments: how the state is read, how it is set, and what the call sets."""

_REPEATED: Mapping[str, tuple[Any, str]] = {
    "gc.collect": (gc, "collect"),
    "torch.cuda.empty_cache": (torch.cuda, "empty_cache"),
}
"""Calls of the user's code that can be left out while it runs."""

_OF_THE_PROCESS = re.compile(r"(export )?[A-Z][A-Z0-9_]*=")
_OF_THE_TRAINER = re.compile(r"Trainer\(|\w*Strategy\(")


def _sets(line: str) -> str:
    """What a line calls or sets: ``torch.set_num_threads``, ``torch.backends.cudnn.allow_tf32``."""
    return line.partition("(")[0].partition("=")[0].strip()


def _of_removed(line: str, trainer: Any) -> list[Switch]:
    """A line of code that goes: a callback, a logger, a call that is made again and again."""
    name = _sets(line)
    if any(type(one).__name__ == name for one in trainer.callbacks):
        return [_without(trainer, lambda one: type(one).__name__ == name)]
    if any(type(one).__name__ == name for one in trainer.loggers):
        return [Attribute(trainer, "loggers", [one for one in trainer.loggers if type(one).__name__ != name])]
    if any(vars(one).get("in_place_of") == name for one in trainer.loggers):
        raise TrialError(_LOGGER_DOES_NOT_RUN)
    if name in _REPEATED:
        return [Attribute(*_REPEATED[name], _nothing)]
    if _OF_THE_PROCESS.match(line):
        raise TrialError(f"{name} is read when the process starts: compare two runs")
    if _OF_THE_TRAINER.match(line):
        raise TrialError(f"{line} is read when the trainer is made: compare two runs")
    if line.endswith("(...)"):
        running = ", ".join(sorted({type(one).__name__ for one in (*trainer.callbacks, *trainer.loggers)}))
        raise TrialError(f"nothing that runs now is called {name}; there are {running or 'no callbacks'}")
    raise TrialError(f"a line of your code has to go: {line.strip()}")


def _of_line(line: str, trainer: Any) -> list[Switch]:
    """A line of code that comes."""
    text = line.partition("  #")[0].strip()
    if text.startswith(("def ", "import ", "from ")):
        return []
    if _OF_THE_PROCESS.match(text):
        raise TrialError(f"{text.removeprefix('export ')} is read when the process starts: compare two runs")
    if _OF_THE_TRAINER.match(text):
        raise TrialError(f"{text} is read when the trainer is made: compare two runs")
    try:
        [statement] = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise TrialError("your code has to change") from None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = ast.unparse(statement.targets[0]), statement.value
        if target.startswith("torch.backends.") and isinstance(value, ast.Constant):
            owner, _, name = target.rpartition(".")
            flags = _dotted(owner)  # modules of torch with a ``__getattr__`` of their own
            return [
                Setting(functools.partial(getattr, flags, name), functools.partial(setattr, flags, name), value.value)
            ]
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if called == "torch.compile" and isinstance(value, ast.Call):
            return [Compiled(trainer.lightning_module, _keywords(value))]
        if called.endswith(".to") and "channels_last" in text and target in ("model", "self.model", "self"):
            return [ChannelsLast(trainer.lightning_module)]
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        name = ast.unparse(call.func)
        if name in _SETTERS and call.args:
            read, write = _SETTERS[name]
            values = [_value(argument) for argument in call.args]
            return [Setting(read, write, values[0] if len(values) == 1 else tuple(values))]
        if name in _TOGGLES:
            return [Setting(*_TOGGLES[name])]
    raise TrialError("your code has to change")


def _keywords(call: ast.Call) -> dict[str, Any]:
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}


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
