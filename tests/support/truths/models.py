"""The four kinds of models in which faults are planted, each with data of its kind; a step takes a few ms."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

Kind = Literal["mlp", "conv", "transformer", "recurrent"]

CLASSES = 10
DISTINCT = 64
"""Samples that are really there; a larger dataset repeats them."""


class Perceptron(nn.Module):
    """Three wide linear layers."""

    def __init__(self, width: int = 448) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
        )

    def forward(self, batch: Tensor) -> Tensor:
        """Logits of ``[batch, 64]``."""
        return self.layers(batch)  # type: ignore[no-any-return]


class Convolutional(nn.Module):
    """Two blocks of convolution, normalisation and pooling."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * channels, CLASSES),
        )

    def forward(self, batch: Tensor) -> Tensor:
        """Logits of ``[batch, 3, 32, 32]``."""
        return self.layers(batch)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Two encoder layers over a sequence of vectors."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, batch: Tensor) -> Tensor:
        """Logits of ``[batch, time, 64]``."""
        return self.head(self.encoder(batch).mean(1))  # type: ignore[no-any-return]


class Recurrent(nn.Module):
    """A gated recurrent network over a sequence of vectors."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cells = nn.GRU(32, width, batch_first=True)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, batch: Tensor) -> Tensor:
        """Logits of ``[batch, time, 32]``."""
        return self.head(self.cells(batch)[0][:, -1])  # type: ignore[no-any-return]


NETWORKS: dict[Kind, Callable[[], nn.Module]] = {
    "mlp": Perceptron,
    "conv": Convolutional,
    "transformer": Transformer,
    "recurrent": Recurrent,
}
SHAPES: dict[Kind, tuple[int, ...]] = {
    "mlp": (64,),
    "conv": (3, 32, 32),
    "transformer": (16, 64),
    "recurrent": (24, 32),
}
BATCH_SIZES: dict[Kind, int] = {"mlp": 32, "conv": 8, "transformer": 8, "recurrent": 8}


class Items(Dataset[tuple[Tensor, Tensor]]):
    """Random samples in memory with labels; whatever is planted happens once per sample.

    Args:
        shape: Shape of a sample.
        size: Samples.
    """

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        self.size = size
        self.samples = torch.randn(DISTINCT, *shape)
        self.labels = torch.randint(CLASSES, (DISTINCT,))
        self.before: list[Callable[[int], None]] = []
        self.transform: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        for happens in self.before:
            happens(index)
        sample, label = self.samples[index % DISTINCT], self.labels[index % DISTINCT]
        return (sample if self.transform is None else self.transform(sample)), label


class Classifier(LightningModule):
    """Trains a network to classify; whatever is planted happens at named places.

    Args:
        network: Gives the logits of a batch.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.in_forward: list[Callable[[], None]] = []
        self.in_backward: list[Callable[[], None]] = []
        self.in_validation: list[Callable[[], None]] = []
        self.logs: list[Callable[[Classifier, Tensor], None]] = []
        self.optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Cross entropy of a batch."""
        for happens in self.in_forward:
            happens()
        samples, labels = batch
        loss = functional.cross_entropy(self.network(samples), labels)
        for happens in self.in_backward:
            loss.register_hook(_at_gradient(happens))  # type: ignore[no-untyped-call]
        for log in self.logs:
            log(self, loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Log the cross entropy of a batch."""
        for happens in self.in_validation:
            happens()
        samples, labels = batch
        self.log("val_loss", functional.cross_entropy(self.network(samples), labels))

    def configure_optimizers(self) -> Any:
        """What the case wants, with a small rate."""
        return self.optimizer(self.parameters(), lr=1e-4)


def _at_gradient(happens: Callable[[], None]) -> Callable[[Tensor], None]:
    def hook(gradient: Tensor) -> None:
        happens()

    return hook
