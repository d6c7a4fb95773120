"""Fixtures for all tests: the shared real traces, and the promise that no thread of ours outlives a test."""

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import browser  # noqa: F401

os.environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ.get("GPUPROF_TEST_GPUS", ""))
os.environ.pop("GPUPROF", None)
# Programs that tests start find what the tests themselves import.
SUPPORT = str(Path(__file__).parent / "support")
os.environ["PYTHONPATH"] = os.pathsep.join([SUPPORT, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.pop("COLUMNS", None)
# Tensors here are tiny: torch's threads would wait for each other most of the time, and for those of other workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nor while they are collected: modules and ten thousand tests stay, and were looked at again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """No garbage collection looks at all tests and modules again: that took a fifth of the time of tests that train."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor at what the tests of a file left, as modules: that would happen in the midst of fits that are measured."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every thread that we start ends with what started it."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith("gpuprof")]
    for thread in left:
        thread.join(60)
    assert [t.name for t in left if t.is_alive()] == []


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real traces beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared with real traces is not here")
    return folder
