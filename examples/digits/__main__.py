"""``python -m examples.digits fit --config configs/digits.yaml``: the digits project from the command line."""

from __future__ import annotations

from lightning.pytorch.cli import LightningCLI

from examples.digits.datamodule import DigitsData
from examples.digits.model import DigitsClassifier


def main() -> None:
    """Parse the command line and run what it asks for."""
    LightningCLI(DigitsClassifier, DigitsData, seed_everything_default=42)


if __name__ == "__main__":
    main()
