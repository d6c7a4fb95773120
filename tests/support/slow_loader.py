"""A program whose loader is slow, as text: for tests that start it as a user's."""

MAIN = """
import sys
import time
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __init__(self, items=512, item_s=0.01):
        self.items, self.item_s = items, item_s
    def __len__(self):
        return self.items
    def __getitem__(self, index):
        time.sleep(self.item_s)
        return torch.ones(8)

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
"""
