"""Fixtures for all tests: the shared real traces, and the promise that no thread of ours outlives a test."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("CUDA_VISIBLE_DEVICES", os.environ.get("GPUPROF_TEST_GPUS", ""))
os.environ.pop("GPUPROF", None)


DEADLINE = float(os.environ.get("GPUPROF_TESTS_UNTIL", "inf"))
"""Seconds since the epoch after which no slow test begins; CI has so much time and no more."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and time.time() > DEADLINE:
        pytest.skip("the time for slow tests is over: GPUPROF_TESTS_UNTIL")


@pytest.fixture(scope="session")
def deadline() -> float:
    """When a test that tries many things stops trying more; seconds since the epoch."""
    return DEADLINE


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every thread that we start ends with what started it."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.name.startswith("gpuprof")]
    for thread in left:
        thread.join(2)
    assert [t.name for t in left if t.is_alive()] == []


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real traces beside the checkout; tests that need it are skipped where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared with real traces is not here")
    return folder
