"""The change of every rule's example is put into a plain script, or has one line that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from example_runs import example_run

from lightning_gpuprof.cli.patching.patch import apply, patch
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.rules.base import BaseRule
from lightning_gpuprof.rules.discovery import discover

SCRIPT = """\
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader


class Net(LightningModule):
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


model = Net()
trainer = Trainer(max_epochs=1)
trainer.fit(model, DataLoader(range(8), shuffle=True))
"""


def _advice() -> dict[str, Change]:
    """The change of each example of each rule."""
    found = {}
    for rule in discover(entry_points=()).rules:
        for example in cast(BaseRule, rule).examples:
            finding = rule.check(example_run(**cast(Any, example.changes))) if example.outcome == "fires" else None
            if finding is not None and finding.change is not None:
                found[f"{rule.id}: {example.run}"] = finding.change
    return found


ADVICE = _advice()


@pytest.mark.parametrize("change", ADVICE.values(), ids=ADVICE.keys())
def test_the_advice_of_every_rule_is_placed_or_said_in_one_line(change: Change, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sources = [script]
    made = patch([change], sources=sources)
    assert made.files or made.unplaced
    assert all("\n" not in one.why and one.snippet and all(one.snippet) for one in made.unplaced)
    if change.call in ("DataLoader", "Trainer") and not change.inside:
        assert made.placed == (change,)
    apply(made)
    assert patch([change], sources=sources).files == ()
