"""Loops as people write them beside the plain one: small real fits that can be run with and without a profiler.

What a loop spends its time on is real work of a few milliseconds (``busy``), so that its verdict is known: a fixed
amount, which takes longer on a machine that slows down, as the rest of a step does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import CombinedLoader
from quiet_trainer import trainer_in
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from lightning_gpuprof import annotate

BATCHES = 40
BUSY_S = 0.005
"""Well above what Lightning needs for a step: 1 to 3 ms, by the speed of the machine."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch would unroll it
def _work(rounds: int) -> None:
    for _ in range(rounds):
        pass


def _rounds_a_second(rounds: int = 100_000) -> float:
    """Of this machine undisturbed: the best of five."""
    taken_s = []
    for _ in range(5):
        begin = time.thread_time()
        _work(rounds)
        taken_s.append(time.thread_time() - begin)
    return rounds / min(taken_s)


_ROUNDS_A_SECOND = _rounds_a_second()


def busy(seconds: float = BUSY_S) -> None:
    """Keep a CPU at work for as long as that takes, undisturbed."""
    _work(round(seconds * _ROUNDS_A_SECOND))


class Rows(Dataset[Tensor]):
    """Rows of numbers, each of which may be work to make."""

    def __init__(self, size: int = BATCHES, *, busy_s: float = 0.0, first: int = 0) -> None:
        self.size = size
        self.busy_s = busy_s
        self.first = first

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        busy(self.busy_s)
        return torch.linspace(0, 1, 8) + (self.first + index) % 5


class Stream(IterableDataset[Tensor]):
    """The same without a length."""

    def __init__(self, size: int = BATCHES, *, busy_s: float = 0.0) -> None:
        self.rows = Rows(size, busy_s=busy_s)

    def __iter__(self) -> Iterator[Tensor]:
        return (self.rows[index] for index in range(self.rows.size))


class Approximate(Stream):
    """As datasets of shards are: it has a length, which is not how many rows come."""

    def __len__(self) -> int:
        return self.rows.size + 7


class Batches:
    """Anything that can be iterated is a loader."""

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.ones(2, 8) for _ in range(BATCHES))


class Model(pl.LightningModule):
    """One layer. Counts the batches that it is given, and is busy with each."""

    def __init__(self, busy_s: float = BUSY_S) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.busy_s = busy_s
        self.lr = 1e-3
        self.batch_size = 2
        self.trained = 0

    def loss(self, batch: Any) -> Tensor:
        """Of a batch, or of several in a collection; None among them is none."""
        self.trained += 1
        busy(self.busy_s)
        if isinstance(batch, dict):
            batch = list(batch.values())
        if isinstance(batch, (list, tuple)):
            batch = torch.cat([one for one in batch if one is not None])
        loss: Tensor = self.layer(batch).square().mean()
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", self.layer(batch).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Silent(Model):
    """Logs nothing."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)


class SeveralOptimizers(Model):
    """Manual optimization; one of the two is stepped in every second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        first, second = self.optimizers()
        loss = self.loss(batch)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        if batch_idx % 2:
            second.zero_grad()
            self.manual_backward(self.layer(batch).abs().mean())
            second.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([self.layer.weight], lr=1e-3), torch.optim.Adam([self.layer.bias], lr=1e-3)]


class Adversarial(Model):
    """A GAN as Lightning's examples have it."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.judge = nn.Linear(8, 1)
        self.layer = nn.Linear(4, 8)

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        makes, judges = self.optimizers()
        self.trained += 1
        busy()
        noise = torch.linspace(-1, 1, 4).repeat(len(batch), 1)
        self.toggle_optimizer(makes)
        loss = -self.judge(self.layer(noise)).mean()
        self.log("g_loss", loss, prog_bar=True)
        self.manual_backward(loss)
        makes.step()
        makes.zero_grad()
        self.untoggle_optimizer(makes)
        self.toggle_optimizer(judges)
        loss = self.judge(self.layer(noise).detach()).mean() - self.judge(batch).mean()
        self.log("d_loss", loss, prog_bar=True)
        self.manual_backward(loss)
        judges.step()
        judges.zero_grad()
        self.untoggle_optimizer(judges)

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(self.layer.parameters()), torch.optim.Adam(self.judge.parameters())], []


class ClosedOver(Model):
    """LBFGS runs its closure several times in one step."""

    trained_batches = 0

    def on_train_batch_end(self, *args: Any) -> None:
        self.trained_batches += 1

    def on_train_end(self) -> None:
        self.trained = self.trained_batches

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=1e-3, max_iter=4)


class Played(IterableDataset[Tensor]):
    """Plays with the policy and trains a critic on what was seen, before it gives a batch to train the policy with."""

    def __init__(self, model: Playing) -> None:
        self.model = model

    def __iter__(self) -> Iterator[Tensor]:
        for episode in range(BATCHES):
            rows = torch.linspace(0, 1, 8).repeat(4, 1) + episode % 5
            with torch.no_grad():
                played = rows * self.model.layer(rows).sigmoid()
            busy()
            with torch.enable_grad():
                self.model.critics.zero_grad()
                self.model.critic(rows).square().mean().backward()
                self.model.critics.step()
            yield from played


class Playing(Model):
    """Reinforcement learning: the data is made, and a second network trained, where batches are fetched."""

    def __init__(self) -> None:
        super().__init__(busy_s=0.0)
        self.critic = nn.Linear(8, 1)
        self.critics = torch.optim.SGD(self.critic.parameters(), lr=1e-3)

    def train_dataloader(self) -> Any:
        return DataLoader(Played(self), batch_size=4)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.layer.parameters(), lr=1e-3)


class MadeAnew(Model):
    """Its loaders are re-created."""

    def train_dataloader(self) -> Any:
        return loader(first=self.current_epoch)


class FetchesItself(Model):
    """``training_step`` is given the iterator."""

    def training_step(self, dataloader_iter: Iterator[Any]) -> Any:  # type: ignore[override]
        batch, _, _ = next(dataloader_iter)
        return self.loss(batch)


class Skipping(Model):
    """Has no loss for each third batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        return None if batch_idx % 3 == 2 else loss


class Annotated(Model):
    """Regions in regions, of the same name too, and one that an exception leaves."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        with annotate("outer"):
            with annotate("inner"), annotate("inner"):
                loss = self.loss(batch)
            try:
                with annotate("failing"):
                    raise KeyError("a region that is left early")
            except KeyError:
                return loss


class ValidatesInside(pl.Callback):
    """Has another trainer validate the model that is being trained."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        other = trainer_in(Path(trainer.default_root_dir), [])
        other.validate(Model(), loader(4), verbose=False)


def validates_in(hook: str) -> list[pl.Callback]:
    """Has the trainer itself validate once training is over."""

    def validate(self: pl.Callback, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        trainer.validate(pl_module, loader(4), verbose=False)

    return [type("Validates", (pl.Callback,), {hook: validate})()]


class StopsEarly(pl.Callback):
    """In the middle of an epoch."""

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        trainer.should_stop = trainer.global_step >= 25


def loader(batches: int = BATCHES, *, busy_s: float = 0.0, first: int = 0) -> DataLoader[Tensor]:
    """Batches of two rows."""
    return DataLoader(Rows(2 * batches, busy_s=busy_s / 2, first=first), batch_size=2)


Start = Callable[[Path, Sequence[pl.Callback]], tuple[pl.Trainer, Any]]
"""Fits in a folder, with these callbacks besides the loop's own; gives trainer and model."""


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One of the loops.

    Attributes:
        name: What it is.
        start: Runs it.
        steps: Training batches of its last fit.
        verdicts: What may be said of it.
        slow: Takes more than five seconds.
    """

    name: str
    start: Start
    steps: int = BATCHES
    verdicts: frozenset[str] = frozenset({"compute-bound"})
    slow: bool = False


def fitted(
    folder: Path,
    callbacks: Sequence[pl.Callback],
    *,
    model: Callable[[], Any] = Model,
    data: Callable[[], Any] | None = loader,
    val: Callable[[], Any] | None = None,
    own: Callable[[], Sequence[pl.Callback]] = list,
    **options: Any,
) -> tuple[pl.Trainer, Any]:
    """One fit of one trainer."""
    trainer = trainer_in(folder, [*callbacks, *own()], **options)
    module = model()
    trainer.fit(module, data and data(), val and val())
    return trainer, module


def combined(mode: str) -> CombinedLoader:
    return CombinedLoader({"a": loader(30), "b": loader(20)}, mode)  # type: ignore[arg-type]


def compiled_module() -> Any:
    torch.compiler.reset()
    return torch.compile(Silent(), backend="eager")


def compiled_layer() -> Any:
    torch.compiler.reset()
    model = Model()
    model.layer = torch.compile(model.layer, backend="eager")  # type: ignore[assignment]
    return model


def resumed(folder: Path, callbacks: Sequence[pl.Callback]) -> tuple[pl.Trainer, Any]:
    """From the middle of the first of two epochs."""
    saves = pl.callbacks.ModelCheckpoint(dirpath=folder / "saved", filename="middle", every_n_train_steps=15)
    trainer_in(folder, [saves], max_steps=15, enable_checkpointing=True).fit(Model(), loader())
    trainer = trainer_in(folder, callbacks, max_epochs=2)
    model = Model()
    trainer.fit(model, loader(), ckpt_path=str(folder / "saved" / "middle.ckpt"))
    return trainer, model


def fitted_twice(folder: Path, callbacks: Sequence[pl.Callback]) -> tuple[pl.Trainer, Any]:
    """By one trainer, which goes on where it was."""
    trainer, model = fitted(folder, callbacks)
    trainer.fit_loop.max_epochs = 3
    model.trained = 0
    trainer.fit(model, loader())
    return trainer, model


def tuned(folder: Path, callbacks: Sequence[pl.Callback], *, search: str) -> tuple[pl.Trainer, Any]:
    """After a search by the Tuner."""

    class Tunable(Model):
        def train_dataloader(self) -> Any:
            return DataLoader(Rows(2 * BATCHES), batch_size=self.batch_size)

        def val_dataloader(self) -> Any:
            return loader(2)

    trainer, model = trainer_in(folder, callbacks), Tunable()
    tuner = pl.tuner.Tuner(trainer)
    if search == "lr_find":
        tuner.lr_find(model, num_training=8)
    else:
        tuner.scale_batch_size(model, init_val=1, steps_per_trial=2, max_trials=2)
        model.batch_size = 2
    model.trained = 0
    trainer.fit(model)
    return trainer, model


def barebones(folder: Path, callbacks: Sequence[pl.Callback]) -> tuple[pl.Trainer, Any]:
    names = "enable_progress_bar", "enable_model_summary", "enable_checkpointing", "logger", "num_sanity_val_steps"
    return fitted(folder, callbacks, model=Silent, **dict.fromkeys(names), barebones=True)


def validated(**options: Any) -> Start:
    return partial(fitted, val=partial(loader, 5), **options)


INPUT = frozenset({"input-bound"})
TOO_SHORT = frozenset({"not-enough-data"})

LOOPS = (
    Loop(name="plain", start=fitted),
    Loop(name="manual, two optimizers", start=partial(fitted, model=SeveralOptimizers)),
    Loop(name="GAN", start=partial(fitted, model=Adversarial)),
    Loop(name="LBFGS", start=partial(fitted, model=ClosedOver)),
    Loop(name="reinforcement learning in the loader", start=partial(fitted, model=Playing, data=None), verdicts=INPUT),
    Loop(name="CombinedLoader, min_size", start=partial(fitted, data=partial(combined, "min_size")), steps=20),
    Loop(name="CombinedLoader, max_size", start=partial(fitted, data=partial(combined, "max_size")), steps=30),
    Loop(
        name="CombinedLoader, max_size_cycle", start=partial(fitted, data=partial(combined, "max_size_cycle")), steps=30
    ),
    Loop(name="CombinedLoader, sequential, to validate", start=partial(fitted, val=partial(combined, "sequential"))),
    Loop(
        name="loaders made anew each epoch",
        start=partial(fitted, model=MadeAnew, data=None, max_epochs=3, reload_dataloaders_every_n_epochs=1),
        steps=3 * BATCHES,
    ),
    Loop(name="overfit_batches", start=partial(fitted, max_epochs=10, overfit_batches=4), steps=40),
    Loop(name="fast_dev_run", start=validated(fast_dev_run=True), steps=1, verdicts=TOO_SHORT),
    Loop(name="resumed in the middle of an epoch", start=resumed, steps=2 * BATCHES - 15),
    Loop(name="fit twice", start=fitted_twice, steps=2 * BATCHES),
    Loop(name="a validation of another trainer inside", start=partial(fitted, own=lambda: [ValidatesInside()])),
    Loop(name="validates in on_train_end", start=partial(fitted, own=partial(validates_in, "on_train_end"))),
    Loop(name="validates in on_fit_end", start=partial(fitted, own=partial(validates_in, "on_fit_end"))),
    Loop(name="after lr_find", start=partial(tuned, search="lr_find")),
    Loop(name="after scale_batch_size", start=partial(tuned, search="scale_batch_size")),
    Loop(
        name="stochastic weight averaging",
        start=partial(
            fitted,
            max_epochs=4,
            own=lambda: [pl.callbacks.StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=1, annealing_epochs=1)],
        ),
        steps=4 * BATCHES,
    ),
    Loop(name="barebones", start=barebones),
    Loop(name="inference_mode=False", start=validated(inference_mode=False, val_check_interval=10)),
    Loop(name="no length", start=validated(data=lambda: DataLoader(Stream(2 * BATCHES), batch_size=2))),
    Loop(
        name="no length, slow",
        start=validated(
            model=partial(Model, 0.0),
            data=lambda: DataLoader(Stream(2 * BATCHES, busy_s=BUSY_S), batch_size=2),
            val_check_interval=16,
        ),
        verdicts=INPUT,
    ),
    Loop(name="a wrong length", start=partial(fitted, data=lambda: DataLoader(Approximate(2 * BATCHES), batch_size=2))),
    Loop(name="an iterable that is no DataLoader", start=partial(fitted, data=Batches)),
    Loop(name="dataloader_iter", start=partial(fitted, model=FetchesItself)),
    Loop(name="a compiled layer", start=partial(fitted, model=compiled_layer)),
    Loop(name="a compiled LightningModule", start=partial(fitted, model=compiled_module)),
    Loop(name="bf16-mixed", start=partial(fitted, precision="bf16-mixed")),
    Loop(name="nested regions", start=partial(fitted, model=Annotated)),
    Loop(name="no loss for some batches", start=partial(fitted, model=Skipping)),
    Loop(name="stopped in the middle", start=partial(fitted, own=lambda: [StopsEarly()]), steps=25),
    Loop(name="detect_anomaly", start=partial(fitted, detect_anomaly=True)),
    Loop(name="max_time", start=partial(fitted, max_time="00:01:00:00")),
    Loop(name="accumulation with a rest", start=partial(fitted, accumulate_grad_batches=7)),
    Loop(name="nothing to train", start=partial(fitted, limit_train_batches=0), steps=0, verdicts=TOO_SHORT),
    Loop(
        name="validation by steps over epochs",
        start=validated(max_epochs=3, check_val_every_n_epoch=None, val_check_interval=16),
        steps=3 * BATCHES,
    ),
    *(
        Loop(
            name=f"workers by {method}",
            start=partial(
                fitted,
                model=partial(Model, 0.0),
                data=lambda method=method: DataLoader(
                    Rows(2 * BATCHES, busy_s=BUSY_S), batch_size=2, num_workers=1, multiprocessing_context=method
                ),
            ),
            verdicts=INPUT,
            slow=True,
        )
        for method in ("fork", "forkserver", "spawn")
    ),
)
