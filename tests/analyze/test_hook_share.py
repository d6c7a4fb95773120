"""The share of the steady steps that one hook takes."""

from __future__ import annotations

import numpy as np
import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.hook_share import hook_share
from lightning_gpuprof.model.journal import Slot


def test_stepping_the_scheduler_has_a_share_of_its_own() -> None:
    of = journal(100)
    action = "[LightningModule]Net.lr_scheduler_step"
    of.slots = [*of.slots, Slot(id=9, action=action, phase="optimizer", callback="", hook="")]
    for index in range(100):
        charge(of, 9, index, 10 * MS)
    share = build(of).lr_scheduler
    assert share is not None
    assert share.median_ratio == pytest.approx(0.5)
    assert share.median_ms == pytest.approx(10)


def test_a_hook_that_never_ran_has_none() -> None:
    of = journal(100)
    assert hook_share(of, np.ones(100, np.bool_), "lr_scheduler_step") is None
    assert build(of).lr_scheduler is None
