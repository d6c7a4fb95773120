"""A training with planted slowness or a planted failure, for ``gpuprof try``; its first argument has them: ``a+b``."""

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, loggers
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.model.trial import Block
from lightning_gpuprof.trial import room
from lightning_gpuprof.trial.schedule import Schedule
from lightning_gpuprof.trial.training import InterleavedTrial

KINDS = frozenset(sys.argv[1].split("+") if len(sys.argv) > 1 else ())


class Samples(Dataset[torch.Tensor]):
    """Each takes a while to make; where it does, an epoch is much longer than the start of workers takes."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1024 if self.seconds else 64

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((8,), float(index))


class Stream(IterableDataset[torch.Tensor]):
    """Without a length."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(40):
            time.sleep(0.001)
            yield torch.ones(8)


class Model(LightningModule):
    """A line."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.lr = 0.01

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Logs, where a step can be compiled with it."""
        if isinstance(batch, dict):
            batch = batch["a"]
        if "exits early" in KINDS and batch_idx == 2:
            raise SystemExit
        if "gives up" in KINDS and batch_idx == 2:
            raise SystemExit("no more data")
        if "memory" in KINDS:
            time.sleep(0.02)  # most of a step, so that what others take of the CPUs is little beside it
            torch.empty(2**50 if len(batch) > 8 else 1)
        loss = self.layer(batch).square().mean()
        if "partial" not in KINDS:  # torch 2.13 cannot compile self.log
            self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Logs."""
        self.log("quality", 1.0)

    def configure_optimizers(self) -> Any:
        """With a schedule of so many steps, where that is tried."""
        optimizer = Adam(self.parameters(), lr=self.lr)
        if "onecycle" not in KINDS:
            return optimizer
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Manual(Model):
    """Steps by itself."""

    automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        """One of its own."""
        optimizer = self.optimizers()
        optimizer.zero_grad()  # type: ignore[union-attr]
        self.manual_backward(self.layer(batch).square().mean())
        optimizer.step()  # type: ignore[union-attr]


class Slow(Callback):
    """Sleeps after each step."""

    def on_train_batch_end(self, *_: Any) -> None:
        """As long as a step."""
        time.sleep(0.02)


class TensorBoardLogger(loggers.TensorBoardLogger):
    """Sleeps whenever it writes, where that is the planted slowness; known by its name, as Lightning's own is."""

    def log_metrics(self, *args: Any, **keywords: Any) -> None:
        """As long as several steps."""
        time.sleep(0.02 if "logs" in KINDS else 0.0)
        super().log_metrics(*args, **keywords)


def kill_workers() -> None:
    """All children, until the kernel has ended them."""
    for child in psutil.Process().children():
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


class Adam(torch.optim.Adam):
    """Without the loader's workers, where they die after what they have sent is found broken."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """See torch."""
        if "late worker" in KINDS:
            kill_workers()
        super().zero_grad(set_to_none)


class Breaks(Callback):
    """Fails where anomalies are looked for, which is the arm that tests ask for."""

    def on_train_batch_start(self, *_: Any) -> None:
        """In one of several ways."""
        if "worker" in KINDS:
            kill_workers()
        if "late worker" in KINDS and psutil.Process().children():
            raise ConnectionResetError("planted")
        if not torch.is_anomaly_enabled():
            return
        if "raises" in KINDS:
            raise RuntimeError("planted in the arm\nwith more lines")
        if "exits" in KINDS:
            os._exit(3)
        if "hangs" in KINDS:
            time.sleep(1000)


class Ends(Callback):
    """Would end the training, and leaves a file where it is told that it ended."""

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> int | None:
        """Says that the epoch is over, now and then."""
        trainer.should_stop = True
        return -1 if trainer.global_step % 20 == 19 and "ends" in KINDS and not self._said() else None

    def _said(self) -> bool:
        self.said = not getattr(self, "said", False)
        return not self.said

    def on_exception(self, *_: Any) -> None:
        """An alarm of the user's."""
        Path("alarm").touch()

    def on_train_end(self, *_: Any) -> None:
        """A result of the user's."""
        Path("end").touch()


def note_compilation() -> None:
    """Leave a line for each block that counts: the graphs that torch compiled in it and before, and its arm.

    Nothing is generated for a graph, which would take a C++ compiler half a minute on a busy machine.
    """
    from torch._dynamo.utils import counters  # which takes long

    torch.compile = partial(torch.compile, backend="aot_eager")

    begin_step, ended, at_start = InterleavedTrial._begin_step, Schedule.ended, [0]
    blocks = Path(os.environ["GPUPROF_TEST_TRIAL"]) / "blocks"

    def graphs() -> int:
        return int(counters["stats"]["unique_graphs"])

    def noting_start(trial: InterleavedTrial) -> None:
        begin_step(trial)
        if trial._measured == 0:
            at_start[0] = graphs()

    def noting_end(schedule: Schedule, block: Block) -> None:
        with blocks.open("a") as file:
            print(graphs() - at_start[0], at_start[0], block.arm, file=file)
        ended(schedule, block)

    InterleavedTrial._begin_step = noting_start  # type: ignore[method-assign]
    Schedule.ended = noting_end  # type: ignore[method-assign]


def loader() -> Any:
    """Of the kind."""
    if "stream" in KINDS:
        return DataLoader(Stream(), batch_size=4)
    if "combined" in KINDS:
        return CombinedLoader({"a": DataLoader(Samples(), batch_size=4), "b": DataLoader(Samples())}, "max_size_cycle")
    if "partial" in KINDS:
        return DataLoader(Samples(), batch_size=3)
    return DataLoader(Samples(0.03 if "loader" in KINDS else 0.0), batch_size=4)


def main() -> None:
    """Train."""
    options: dict[str, Any] = {"max_epochs": 2, "callbacks": []}
    if "fails" in KINDS:
        raise RuntimeError("planted before a Trainer")
    if "partial" in KINDS:
        note_compilation()
    if KINDS & {"callback", "partial"}:
        options["callbacks"] = [Slow()]
    elif "logs" in KINDS:
        options |= {"logger": TensorBoardLogger("tb"), "log_every_n_steps": 1}
    elif KINDS & {"raises", "exits", "hangs", "worker", "late worker"}:
        options["callbacks"] = [Breaks()]
    elif "ends" in KINDS:
        options |= {"max_steps": 20, "max_time": "00:00:00:02", "callbacks": [Ends()]}
    elif "own" in KINDS:
        stopping, saving = EarlyStopping("quality", patience=0), ModelCheckpoint("saved", every_n_train_steps=5)
        options["callbacks"] = [GpuProfiler(), stopping, saving, LearningRateMonitor()]
        options["logger"] = [TensorBoardLogger("tb"), WandbLogger(offline=True, save_dir="wandb")]
    elif "crowded" in KINDS:
        room.usable_cpus, room.LEFT_RATIO = (lambda **_: 1e3), 1.0  # type: ignore[assignment]
    elif "profiled" in KINDS:
        options["profiler"] = "simple"
    elif "fast" in KINDS:
        options["fast_dev_run"] = True
    elif "ranks" in KINDS:
        options |= {"strategy": "ddp", "devices": 2}
    elif "spawned" in KINDS:
        options |= {"strategy": "ddp_spawn", "devices": 2, "callbacks": [Ends()]}
    trainer = Trainer(accelerator="cpu", **options)
    model = Manual() if "manual" in KINDS else Model()
    if "nothing" in KINDS:
        return
    if "before" in KINDS:
        trainer.validate(model, DataLoader(Samples(), batch_size=32))
        Tuner(trainer).lr_find(model, loader(), num_training=5)
    trainer.fit(model, loader(), DataLoader(Samples(), batch_size=32) if "own" in KINDS else None)
    Path("after").touch()
    trainer.fit(model, loader())


if __name__ == "__main__":
    main()
