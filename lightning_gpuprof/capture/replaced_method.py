"""Puts a function in the place of a method of a class that all runs of the process share, for a while."""

from collections.abc import Callable
from functools import partial
from typing import Any

Around = Callable[[Callable[[Any], Any], Any], Any]
"""Called with the method that was there and the instance, gives what the method returns."""


def replace_method(owner: type, name: str, around: Around) -> Callable[[], None]:
    """Have a method without arguments go through a function.

    Args:
        owner: Class that has it.
        name: Of the method.
        around: Called in its place.

    Returns:
        What takes it back: once, and in any order with other runs, of which the first may end first.
    """

    def replaced(instance: Any) -> Any:
        own, original = hook.around, hook.original
        return original(instance) if own is None else own(original, instance)

    hook: Any = replaced
    hook.around, hook.original = around, getattr(owner, name)
    setattr(owner, name, hook)
    return partial(_take_out, owner, name, hook)


def _take_out(owner: type, name: str, hook: Any) -> None:
    hook.around = None  # below the function of somebody else it stays, and must hold nothing of the run
    above: Any = None
    one: Any = getattr(owner, name, None)
    while one is not hook and hasattr(one, "around"):
        above, one = one, one.original
    if one is not hook:
        return
    if above is None:
        setattr(owner, name, hook.original)
    else:
        above.original = hook.original
