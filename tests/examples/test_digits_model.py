from pathlib import Path

import torch
from torch.nn import functional

from examples.digits.dataset import DigitImages
from examples.digits.images import list_images
from examples.digits.model import DigitsClassifier


def test_the_network_learns_a_handful_of_digits(digits_folder: Path) -> None:
    torch.manual_seed(0)
    dataset = DigitImages(list_images(digits_folder)[:50], augmented=False)
    items = [dataset[index] for index in range(len(dataset))]
    images, labels = torch.stack([pixels for pixels, _ in items]), torch.tensor([label for _, label in items])
    model = DigitsClassifier(channels=8)
    optimizer = model.configure_optimizers()
    for _ in range(20):
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    assert accuracy > 0.9
