"""Names for a journal's callbacks, different ones for instances of one class."""

import ast
from collections import defaultdict
from collections.abc import Iterable

from lightning_gpuprof.model.journal import Slot

MAX_DIFFERENCE = 40
"""Characters; callbacks of one class whose arguments differ by more are numbered."""


def callback_names(slots: Iterable[Slot]) -> dict[str, str]:
    """A name for each state key: the class, and where a class occurs with several keys, what they differ in.

    Lightning's state keys are the class, or the class with its arguments behind it: ``ModelCheckpoint{'monitor': …}``.
    Numbers follow the order of the slots, which is that of first use.

    Returns:
        State key to ``EarlyStopping``, ``ModelCheckpoint (monitor=val_loss)`` or ``Nap #1``; also of the
        LightningModule, whose key is its class.
    """
    by_class: dict[str, list[str]] = defaultdict(list)
    for key in dict.fromkeys(slot.callback for slot in slots if slot.callback):
        by_class[_class_name(key)].append(key)
    names: dict[str, str] = {}
    for owner, keys in by_class.items():
        if len(keys) == 1:
            names[keys[0]] = owner
        else:
            marks = _differences(keys) or [f"#{number}" for number in range(1, len(keys) + 1)]
            names.update({key: f"{owner} {mark}" for key, mark in zip(keys, marks, strict=True)})
    return names


def _class_name(state_key: str) -> str:
    return state_key.split("{", 1)[0]


def _differences(keys: list[str]) -> list[str]:
    """The arguments in which the keys differ, in parentheses; empty if they are too long or do not separate them."""
    arguments = [_arguments(key) for key in keys]
    words = dict.fromkeys(word for each in arguments for word in each)
    differing = [word for word in words if len({each.get(word) for each in arguments}) > 1]
    marks = [f"({', '.join(f'{word}={each[word]}' for word in differing if word in each)})" for each in arguments]
    apart = len(set(marks)) == len(marks) and "()" not in marks
    return marks if apart and max(map(len, marks)) <= MAX_DIFFERENCE else []


def _arguments(state_key: str) -> dict[str, str]:
    """Arguments in a state key as text; none if it holds anything but plain values."""
    try:
        values = ast.literal_eval(state_key[len(_class_name(state_key)) :])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {str(word): str(value) for word, value in values.items()} if isinstance(values, dict) else {}
