"""The share of the steady steps that one hook takes."""

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
    assert share.median_ratio == pytest.approx(0.5)
    assert share.median_ms == pytest.approx(10)


def test_a_hook_that_never_ran_has_none() -> None:
    of = journal(100)
    assert hook_share(of, np.ones(100, np.bool_), "lr_scheduler_step") is None
    assert build(of).lr_scheduler is None


def test_hooks_around_the_move_of_a_batch_are_separated_with_their_lines() -> None:
    of = journal(100)
    names = ("[Strategy]S.batch_to_device", "[LightningModule]Net.on_after_batch_transfer")
    names += ("[LightningDataModule]Data.transfer_batch_to_device",)
    of.slots = [*of.slots, *(Slot(id=9 + n, action=name, phase="h2d") for n, name in enumerate(names))]
    for index in range(100):
        for slot, ms in ((9, 1), (10, 4), (11, 5)):
            charge(of, slot, index, ms * MS)
    of.sites.update({10: {"net.py:7 on_after_batch_transfer": 3}})
    found = build(of).transfer_hooks
    assert [(one.owner, one.hook, one.site) for one in found] == [
        ("Data", "transfer_batch_to_device", ""),
        ("Net", "on_after_batch_transfer", "net.py:7 on_after_batch_transfer"),
    ]
    assert [one.share.median_ratio for one in found] == pytest.approx([0.25, 0.2])


def test_each_logger_s_writes_are_separated_with_the_time_of_one() -> None:
    of = journal(100)
    actions = ("CSVLogger.log_metrics", "CSVLogger.save", "Remote.log_metrics", "self.log")
    of.slots = [*of.slots, *(Slot(id=9 + n, action=name, phase="logging") for n, name in enumerate(actions))]
    for index in range(100):
        charge(of, 12, index, 1 * MS)
        if index % 2:
            charge(of, 9, index, 1 * MS)
            charge(of, 10, index, 2 * MS)
            charge(of, 11, index, 8 * MS)
    metrics = build(of)
    found = metrics.logger_writes
    assert [(one.name, one.each_ms) for one in found] == [("Remote", 8.0), ("CSVLogger", 3.0)]
    assert found[0].share.total_ratio / found[1].share.total_ratio == pytest.approx(8 / 3)
    assert all(one.count < metrics.steps.steady_count for one in found)
    assert {"CSVLogger.save", "Remote.log_metrics", "self.log"} <= {row.name for row in metrics.ledger}
