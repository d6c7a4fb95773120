"""Fits of these tests wait for what is done beside them, however busy the machine is."""

from collections.abc import Iterator

import patience
import pytest


@pytest.fixture(autouse=True, scope="package")
def patient() -> Iterator[None]:
    """Users are not kept waiting for an analysis at the end; a test that reads it is."""
    with pytest.MonkeyPatch.context() as changed:
        patience.begin(changed.setattr)
        yield
