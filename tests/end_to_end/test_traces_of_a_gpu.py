"""Windows that this package records on a GPU, read by its own engine: what was planted must be found."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from planted_runs import quiet_profiler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.reader import Trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

WIDTH = 512
STEPS = 3


class Transformer(pl.LightningModule):
    """A small encoder; ``item`` makes the host wait for the device in each step."""

    shape: tuple[int, ...] = (64, WIDTH)

    def __init__(self, *, item: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, dropout=0.0)
        self.net = nn.TransformerEncoder(layer, 4)
        self.item = item

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.net(batch[0]).square().mean()
        if self.item and loss.item() < 0:
            raise AssertionError
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 1e-4)


class Block(nn.Module):
    """Two convolutions with a way around them, as in a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.inner(x))


class ResNet(Transformer):
    """A small residual network on images of 64 x 64."""

    shape = (3, 64, 64)

    def __init__(self) -> None:
        super().__init__()
        stages = [
            [nn.Conv2d(before, after, 3, 2, 1), Block(after)] for before, after in ((3, 64), (64, 128), (128, 256))
        ]
        self.net = nn.Sequential(*(layer for stage in stages for layer in stage))  # type: ignore[assignment]


def recorded(tmp_path: Path, model: Transformer, *, pin: bool = True, **options: Any) -> TraceAnalysis:
    data = DataLoader(TensorDataset(torch.randn(16 * 30, *model.shape)), batch_size=16, pin_memory=pin)
    trace = TraceConfig(record_shapes=True, with_stack=options.pop("with_stack", False))
    profiler = quiet_profiler(windows=(15, 15 + STEPS - 1), trace=trace, dirpath=str(tmp_path / "run"))
    trainer = pl.Trainer(
        max_epochs=1, accelerator="gpu", devices=1, callbacks=[profiler], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, **options,
    )  # fmt: skip
    trainer.fit(model, data)
    (file,) = (tmp_path / "run").glob("*.pt.trace.json.gz")
    return analyse(Trace.read(file))


def kernel_share(analysis: TraceAnalysis, kernel_class: str) -> float:
    assert analysis.kernels is not None
    return sum(row.share_ratio or 0.0 for row in analysis.kernels.classes if row.kernel_class == kernel_class)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("model", [Transformer, ResNet])
def test_every_kernel_that_was_launched_is_seen(tmp_path: Path, model: type[Transformer], precision: str) -> None:
    found = recorded(tmp_path, model(), precision=precision)
    assert found.problems == ()
    assert found.health.kernel_launches > 100
    assert (found.health.kernel_launches_without_work, found.health.steps) == (0, STEPS)
    assert found.health.problems == ()
    assert sum(kernel_share(found, kind) for kind in ("gemm", "attention", "convolution")) > 0.2
    assert {"forward", "backward", "optimizer"} <= set(found.step_trace.mean.phases_us)


def test_item_is_a_sync_point_once_a_step_at_its_line(tmp_path: Path) -> None:
    without = recorded(tmp_path / "a", Transformer()).sync_points
    found = recorded(tmp_path / "b", Transformer(item=True), with_stack=True).sync_points
    assert found is not None
    (site,) = [site for site in found.sites if site.operation == "aten::item"]
    assert site.count_per_step == 1
    assert "training_step" in site.line.frame
    assert not any(site.operation == "aten::item" for site in without.sites)


def test_pageable_copies_are_told_from_pinned_ones(tmp_path: Path) -> None:
    def kinds(analysis: TraceAnalysis) -> set[str]:
        return {row.name for row in analysis.api_tables.cuda_gpu_mem_time_sum}

    assert any("Pageable" in name for name in kinds(recorded(tmp_path / "a", Transformer(), pin=False)))
    assert any("Pinned" in name for name in kinds(recorded(tmp_path / "b", Transformer())))


def test_bf16_runs_on_tensor_cores_and_its_mfu_is_below_one(tmp_path: Path) -> None:
    found = recorded(tmp_path, Transformer(), precision="bf16-mixed")
    assert found.kernels.tensor_cores.yes_us > 0.8 * found.kernels.tensor_cores.matrix_us
    assert found.roofline.steps is not None
    assert found.roofline.steps.mfu_ratio is None or 0 < found.roofline.steps.mfu_ratio < 1


def test_kernels_of_a_compiled_model_have_a_class(tmp_path: Path) -> None:
    model = Transformer()
    model.net = torch.compile(model.net)  # type: ignore[assignment]
    assert kernel_share(recorded(tmp_path, model), "triton") > 0
