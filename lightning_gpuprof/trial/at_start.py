"""What is read when a process starts or a Trainer is made, and therefore needs a process of its own to be tried.

Variables of the environment, some arguments of the Trainer, the batch size: one must not use memory of another one.
"""

import ast
import inspect
import re
import sys
from types import FrameType
from typing import Any

import msgspec

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.trial import Arm

TRAINER_ARGUMENTS = ("accumulate_grad_batches", "devices", "strategy", "sync_batchnorm", "use_distributed_sampler")
"""Arguments of the Trainer that can be set where it is made."""
_VARIABLE = re.compile(r"(?:export )?([A-Z][A-Z0-9_]*)=(.*)|export (\w+)=(.*)")
_TRAINER = re.compile(r"Trainer\(\.\.\., ")


def needs_process(arm: Arm) -> bool:
    """Whether an arm cannot be switched on while training runs, but a process can start with it."""
    return bool(variables(arm) or trainer_arguments(arm)) or any(
        change.call == "DataLoader" and "batch_size" in change.arguments and not change.inside for change in arm.changes
    )


def variables(arm: Arm) -> dict[str, str | None]:
    """Variables of the environment that an arm sets; None: it is unset."""
    found: dict[str, str | None] = {}
    for change in arm.changes:
        found |= dict.fromkeys(name for name, _ in map(_variable, change.remove) if name)
        found |= {name: value for name, value in map(_variable, change.add) if name}
    return found


def trainer_arguments(arm: Arm) -> dict[str, Value | ast.expr]:
    """Arguments of the Trainer that are read when it is made: values, or expressions as ``DDPStrategy(...)``."""
    found: dict[str, Value | ast.expr] = {}
    for change in arm.changes:
        if change.call == "Trainer":
            found |= {name: value for name, value in change.arguments.items() if _is_trainer_argument(name, value)}
        for line in change.add:
            found |= _written(line)
    return found


def runtime_part(arm: Arm) -> Arm:
    """An arm without all that is read at the start; the batch size stays, since the loader is made again with it."""

    def without(change: Change) -> Change:
        arguments = change.arguments
        if change.call == "Trainer":
            arguments = {name: value for name, value in arguments.items() if not _is_trainer_argument(name, value)}
        lines = {
            name: tuple(line for line in getattr(change, name) if not (_variable(line)[0] or _written(line)))
            for name in ("add", "remove")
        }
        return msgspec.structs.replace(change, arguments=arguments, **lines)

    return msgspec.structs.replace(arm, changes=tuple(without(change) for change in arm.changes))


def set_arguments(arm: Arm) -> None:
    """Give the Trainer that is being made, by a caller of this function, other arguments.

    Raises:
        TrialError: No Trainer is being made, or an argument is an expression that has no value here.
    """
    changed = trainer_arguments(arm)
    if not changed:
        return
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and not (
        frame.f_code.co_name == "__init__" and hasattr(frame.f_locals.get("self"), "_accelerator_connector")
    ):
        frame = frame.f_back
    if frame is None:
        raise TrialError(f"this Lightning does not let Trainer({next(iter(changed))}=...) be changed from outside")
    trainer, given = frame.f_locals["self"], frame.f_locals
    strategies = sys.modules[f"{type(trainer._accelerator_connector).__module__.partition('.trainer')[0]}.strategies"]
    values = {name: _evaluated(value, strategies) for name, value in changed.items()}
    connector = type(trainer._accelerator_connector)
    names = set(inspect.signature(connector).parameters)
    if names & set(values):  # it has chosen devices and strategy already: another one chooses again
        trainer._accelerator_connector = connector(**{n: values.get(n, given[n]) for n in names if n in given})
    for name in set(values) - names:
        setattr(trainer, name, values[name])


def _variable(line: str) -> tuple[str, str]:
    """Name and value; an empty name where the line is none of a shell."""
    found = _VARIABLE.fullmatch(line.partition("  #")[0].strip())
    return ("", "") if found is None else (found[1] or found[3], found[2] or found[4] or "")


def _is_trainer_argument(name: str, value: object) -> bool:
    is_true = name == "precision" and str(value).endswith("-true") and value != "32-true"
    return name in TRAINER_ARGUMENTS or is_true


def _written(line: str) -> dict[str, Value | ast.expr]:
    """Arguments in ``Trainer(..., name=value)``."""
    text = line.partition("  #")[0].strip()
    if not _TRAINER.match(text):
        return {}
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return {}
    assert isinstance(call, ast.Call)
    return {one.arg: one.value for one in call.keywords if one.arg in TRAINER_ARGUMENTS}


def _evaluated(value: Value | ast.expr, strategies: Any) -> Any:
    """A literal, or a strategy with literals."""
    if not isinstance(value, ast.expr):
        return value
    try:
        if isinstance(value, ast.Call):
            made = getattr(strategies, ast.unparse(value.func))
            return made(**{str(one.arg): ast.literal_eval(one.value) for one in value.keywords})
        return ast.literal_eval(value)
    except (ValueError, AttributeError):
        raise TrialError(f"{ast.unparse(value)} has to be written by hand") from None
