"""The settings that ``validation-stall`` advises, given to Lightning: it takes them and validates less."""

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from findings_builder import fired
from lightning.pytorch import LightningModule
from metrics_builder import build
from quiet_trainer import trainer_in
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_gpuprof.capture.conditions.collect import collect
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.rules.loop.validation_stall import ValidationStall

TINY = {"forward": 0.2, "backward": 0.2, "optimizer": 0.1, "data_wait": 0.1, "zero_grad": 0.05, "loop": 0.1}


class Sized(Dataset[torch.Tensor]):
    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


class Endless(IterableDataset[torch.Tensor]):
    """Without a length; it ends all the same."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.ones(2)] * self.batches)


class Net(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.validated = 0
        self.runs = 0
        self.facts: dict[str, Value] = {}

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def on_train_start(self) -> None:
        self.facts = collect(self.trainer, self, self.trainer.train_dataloader)

    def validation_step(self, batch: torch.Tensor, _: int, dataloader_idx: int = 0) -> None:
        self.validated += 1

    def on_validation_start(self) -> None:
        self.runs += 1

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(train: Any, val: list[Any], **settings: Any) -> Net:
    model = Net()
    trainer = trainer_in(None, **{"max_epochs": 4, **settings})
    trainer.fit(model, DataLoader(train, batch_size=None), [DataLoader(one, batch_size=None) for one in val])
    return model


def advice_of(model: Net, epochs: int) -> str:
    run = build(times_ms=TINY, validation=(model.runs, 3.0), epochs=epochs, run=model.facts, checkpoint=(0, 0.0))
    return fired(ValidationStall(), run).advice


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("train", "val", "settings"),
    [
        (Sized(8), [Sized(40)], {"max_epochs": 1, "limit_val_batches": 15}),
        (Sized(8), [Sized(40)], {"max_epochs": 1, "limit_val_batches": 0.25}),
        (Sized(8), [Sized(40), Sized(3)], {"max_epochs": 1}),
        (Sized(8), [Sized(4)], {}),
        (Sized(8), [Sized(4)], {"check_val_every_n_epoch": 2}),
        (Sized(8), [Sized(4)], {"val_check_interval": 2}),
        (Sized(22), [Sized(4)], {"val_check_interval": 2}),
        (Sized(8), [Sized(4)], {"val_check_interval": 0.25}),
        (Sized(22), [Sized(4)], {"val_check_interval": 0.05}),
        (Sized(8), [Sized(4)], {"val_check_interval": 3, "check_val_every_n_epoch": None}),
        (Endless(22), [Sized(4)], {"val_check_interval": 2}),
        (Endless(8), [Sized(4)], {"val_check_interval": 3}),
        (Endless(8), [Endless(4)], {"val_check_interval": 5, "max_epochs": 2}),
        (Endless(8), [Endless(4)], {}),
    ],
)
def test_lightning_takes_the_advised_settings_and_validates_less(
    train: Any, val: list[Any], settings: dict[str, Any]
) -> None:
    before = fitted(train, val, **settings)
    advice = advice_of(before, epochs=settings.get("max_epochs", 4))
    calls = re.findall(r"Trainer\((.*?)\)", advice)
    assert calls, advice
    for call in calls:
        advised = {
            word.arg: ast.literal_eval(word.value) for word in ast.parse(f"f({call})", mode="eval").body.keywords
        }
        after = fitted(train, val, **{**settings, **advised})
        assert 0 < after.validated < before.validated, advice


def test_of_a_single_run_without_a_length_no_number_is_made_up() -> None:
    facts: dict[str, Value] = {"trainer.num_val_batches": float("inf"), "val_loader.count": 1}
    finding = fired(ValidationStall(), build(times_ms=TINY, validation=(1, 3.0), epochs=1, run=facts))
    assert finding.advice == "Validate on 1/2 of the batches: set limit_val_batches in the Trainer to an int."
    assert finding.change is None


def test_a_single_run_of_a_single_batch_cannot_be_made_of_fewer() -> None:
    facts: dict[str, Value] = {"trainer.num_val_batches": 1, "val_loader.count": 1}
    finding = fired(ValidationStall(), build(times_ms=TINY, validation=(1, 3.0), epochs=1, run=facts))
    assert "limit_val_batches" not in finding.advice
