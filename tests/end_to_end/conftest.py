"""Fits of these tests wait for what is done beside them, however busy the machine is."""

import signal
from collections.abc import Iterator

import patience
import pytest
from forked_scripts import ForkedScripts


@pytest.fixture(autouse=True, scope="package")
def patient() -> Iterator[None]:
    """Users are not kept waiting for an analysis at the end; a test that reads it is."""
    with pytest.MonkeyPatch.context() as changed:
        patience.begin(changed.setattr)
        yield


@pytest.fixture(scope="session")
def forked_scripts() -> Iterator[ForkedScripts]:
    """The scripts of all files that need a process of their own, but no start of it."""
    scripts = ForkedScripts()
    yield scripts
    scripts.close()


@pytest.fixture
def ctrl_c_as_it_was() -> Iterator[None]:
    """Lightning leaves it switched off."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)
