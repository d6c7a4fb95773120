"""What a test needs to be there before it can look at it."""

from typing import TypeVar

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """The value, which is not None.

    Args:
        value: Of a field that may be None.
    """
    assert value is not None
    return value
