"""What a plain script becomes by the change of a finding."""

from pathlib import Path

from lightning_gpuprof.cli.patching.patch import apply, patch
from lightning_gpuprof.model.change import Change

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


def assert_placed_or_said(change: Change, folder: Path) -> None:
    """It is put into the script of a folder so that nothing is left to change, or has a line that says why not."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    made = patch([change], sources=[script])
    assert made.files or made.unplaced
    assert all("\n" not in one.why and one.snippet and all(one.snippet) for one in made.unplaced)
    if change.call in ("DataLoader", "Trainer") and not change.inside:
        assert not made.unplaced
    apply(made)
    assert patch([change], sources=[script]).files == ()
