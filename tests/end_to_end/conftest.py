"""Fits of these tests wait for what is done beside them, however busy the machine is."""

from __future__ import annotations

import pytest

from lightning_gpuprof import callback


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users are not kept waiting for an analysis at the end; a test that reads it is."""
    monkeypatch.setattr(callback, "JOB_TIMEOUT_S", 120.0)
    monkeypatch.setattr(callback, "INTERRUPTED_JOB_TIMEOUT_S", 120.0)
