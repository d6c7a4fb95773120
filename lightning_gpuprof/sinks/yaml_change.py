"""A change as lines of a LightningCLI configuration."""

import json
from collections.abc import Mapping

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value


class YamlChange(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a configuration, indented as they stand there."""

    file: str
    """Empty: not known."""
    inside: tuple[str, ...]
    """The section that they are in."""
    removed: tuple[str, ...]
    added: tuple[str, ...]


def yaml_change(change: Change, run: Mapping[str, Value]) -> YamlChange | None:
    """The change in the configuration; None if the run had none, or if it does not have all of these arguments.

    Args:
        change: Of arguments.
        run: Conditions of the run.
    """
    callbacks = str(run.get("trainer.callbacks") or "").split(", ")
    if "SaveConfigCallback" not in callbacks or not change.arguments or change.remove or change.add:
        return None
    inside: tuple[str, ...] = ()
    if change.call == "Trainer":
        inside = ("trainer:",)
    elif change.call == "DataLoader":
        inside = _data_section(change, str(run.get("trainer.config_data") or "").split(", "))
    elif change.call in callbacks:
        inside = ("trainer:", "  callbacks:", f"  - class_path: {change.call}", "    init_args:")
    if not inside:
        return None
    last = inside[-1]
    indent = " " * (len(last) - len(last.lstrip()) + 2)
    removed = {name: value for name, value in change.before.items() if name in change.arguments}
    return YamlChange(
        file=str(run.get("trainer.config_file") or ""),
        inside=inside,
        removed=tuple(f"{indent}{name}: {_written(value)}" for name, value in removed.items()),
        added=tuple(f"{indent}{name}: {_written(value)}" for name, value in change.arguments.items()),
    )


def _data_section(change: Change, known: list[str]) -> tuple[str, ...]:
    """Where the arguments of the data module are; empty: some are not there."""
    for path in ("data", "data.init_args"):
        if all(f"{path}.{name}" in known for name in change.arguments):
            return tuple("  " * depth + f"{name}:" for depth, name in enumerate(path.split(".")))
    return ()


def _written(value: Value) -> str:
    """A value in YAML, of which JSON is a part; words that mean nothing else need no quotes."""
    is_word = isinstance(value, str) and value.replace("-", "").isalnum() and not value[0].isdigit()
    reserved = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return str(value) if is_word and str(value).lower() not in reserved else json.dumps(value)
