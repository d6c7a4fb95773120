"""Advice as data: which arguments of which call get which values, so that a text, a diff and a trial cannot differ."""

import msgspec

from lightning_gpuprof.model.journal import Value


class Change(msgspec.Struct, kw_only=True, frozen=True):
    """Arguments of one call of the user's code that change, or lines that replace others."""

    call: str = ""
    """What is called, as users write it: ``DataLoader``, ``Trainer``, ``torch.optim.AdamW``; empty: lines only."""
    arguments: dict[str, Value] = {}
    """By name, the value to set."""
    before: dict[str, Value] = {}
    """The values of the run, of those that are known."""
    remove: tuple[str, ...] = ()
    """Lines of code to remove, where the change is not an argument."""
    add: tuple[str, ...] = ()
    """Lines of code to add."""
    inside: str = ""
    """The method of the user's that builds what is meant, ``val_dataloader``; empty: that of the training."""
    which: str = ""
    """Of several such calls the one meant, in words: ``the slowest of 2 loaders, ['labelled']``."""
    place: str = ""
    """Where ``add`` goes, in words: ``before trainer.fit``; empty: the lines say it, or ``file`` does."""
    file: str = ""
    """Where the call or the line is; empty: not known."""
    line: int | None = None
    """In ``file``, from 1."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Lines of a diff without the minus; of a call only where its earlier values are known."""
        return (*((_call(self.call, self.before),) if self.arguments and self.before else ()), *self.remove)

    @property
    def added(self) -> tuple[str, ...]:
        """Lines of a diff without the plus."""
        return (*((_call(self.call, self.arguments),) if self.arguments else ()), *self.add)


def setting(call: str, **values: tuple[Value, Value]) -> Change:
    """Arguments of one call.

    Args:
        call: What is called, as users write it.
        **values: By name, the value of the run (None: not known) and the one to set.
    """
    before: dict[str, Value] = {name: now for name, (now, _) in values.items() if now is not None}
    return Change(call=call, arguments={name: new for name, (_, new) in values.items()}, before=before)


def _call(name: str, arguments: dict[str, Value]) -> str:
    written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}(..., {written})" if written else f"{name}(...)"
