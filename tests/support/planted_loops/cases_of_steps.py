"""Cases: all that may happen within a step: ways of optimizing, precisions, hooks of the batch, logging."""

from functools import partial
from typing import Any

import pytorch_lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.profilers import SimpleProfiler

from planted_loops.case import Case
from planted_loops.places import Place
from planted_loops.planting import SlowDisk, SlowLogger, loader, planted_module
from planted_loops.run import Run

STEP = {"dataset": 0.012, "training_step": 0.010, "backward": 0.008, "optimizer": 0.006}
MODEL = {"training_step": 0.010, "backward": 0.014, "optimizer": 0.007}
BATCH_HOOKS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)


def plain(run: Run) -> None:
    run.fit(steps=10, optimizer_steps=10)


def barebones(run: Run) -> None:
    trainer = run.trainer(
        barebones=True,
        enable_progress_bar=None,
        enable_model_summary=None,
        enable_checkpointing=None,
        logger=None,
        num_sanity_val_steps=None,
    )
    run.fit(trainer=trainer, steps=10, optimizer_steps=10)


def manual(run: Run) -> None:
    run.fit(planted_module(run.naps, "manual"), loader(run.naps, 6), steps=6, optimizer_steps=12)


def lbfgs(run: Run) -> None:
    run.fit(planted_module(run.naps, "lbfgs"), loader(run.naps, 6), steps=6, optimizer_steps=6)


def accumulation(run: Run) -> None:
    run.fit(accumulate_grad_batches=3, steps=10, optimizer_steps=4)


def clipped(run: Run) -> None:
    run.fit(gradient_clip_val=0.5, steps=10)


def precision(run: Run, name: str, becomes: str) -> None:
    run.fit(precision=name, steps=10, optimizer_steps=10)
    found = run.measured[-1].report.run["trainer.precision"]
    if found != becomes:
        raise AssertionError(f"precision {name} became {found}, not {becomes}")


def scaled(run: Run) -> None:
    # On the CPU the scale of the losses must not make them infinite: updates would be left out.
    scaler: Any = torch.amp.GradScaler("cpu", init_scale=1.0)
    run.fit(plugins=[MixedPrecision("16-mixed", "cpu", scaler=scaler)], steps=10, optimizer_steps=10)


def returns_none(run: Run) -> None:
    run.fit(planted_module(run.naps, none_every=2), steps=10)


def compiled(run: Run) -> None:
    module = torch.compile(planted_module(run.naps, "logs nothing"), backend="eager")
    run.trainer().fit(module, loader(run.naps, 2))  # compiling takes as long as it takes
    run.fit(module, steps=10, optimizer_steps=10)


def scheduled(run: Run, interval: str, epochs: int) -> None:
    run.fit(planted_module(run.naps, scheduler_interval=interval), max_epochs=epochs, steps=10 * epochs)


def logged(run: Run) -> None:
    logger = SlowLogger()
    logger.naps = run.naps
    run.fit(logger=logger, log_every_n_steps=2, steps=10)


def saved(run: Run, **when: Any) -> None:
    disk = SlowDisk()
    disk.naps = run.naps
    saver = ModelCheckpoint(dirpath=run.folder / "checkpoints", save_top_k=-1, **when)
    run.fit(callbacks=[saver], plugins=[disk], enable_checkpointing=True, steps=10)


def beside_a_profiler(run: Run) -> None:
    run.fit(profiler=SimpleProfiler(dirpath=str(run.folder), filename="own"), steps=10)


def older_package(run: Run) -> None:
    module = planted_module(run.naps, package=pytorch_lightning)
    run.fit(module, package=pytorch_lightning, steps=10, optimizer_steps=10)


ALL_PLACES = {
    **STEP,
    "zero_grad": 0.005,
    "clip": 0.004,
    "module.on_after_batch_transfer": 0.007,
    "callback.on_train_batch_end": 0.009,
}
ONE_BY_ONE = {
    **dict.fromkeys(ALL_PLACES, 0.01),
    "collate": 0.01,
    "module.transfer_batch_to_device": 0.01,
    "module.on_before_batch_transfer": 0.01,
}

CASES = (
    Case(name="automatic", do=plain, naps=ALL_PLACES),
    *(Case(name=f"only {place}", do=plain, naps={place: nap}) for place, nap in ONE_BY_ONE.items()),
    Case(name="hooks of the module", do=plain, naps={f"module.{hook}": 0.006 for hook in BATCH_HOOKS}),
    Case(name="hooks of a callback", do=plain, naps={f"callback.{hook}": 0.006 for hook in BATCH_HOOKS}),
    Case(name="barebones", do=barebones, naps=STEP),
    Case(name="manual, two optimizers", do=manual, naps=STEP),
    Case(
        name="manual, hooks",
        do=manual,
        naps={f"{owner}.{hook}": 0.008 for owner in ("module", "callback") for hook in BATCH_HOOKS[2:4]},
    ),
    Case(name="accumulation of 3", do=accumulation, naps={**STEP, "optimizer": 0.02, "zero_grad": 0.015}),
    Case(name="LBFGS", do=lbfgs, naps={**STEP, "zero_grad": 0.005}),
    Case(name="gradient_clip_val", do=clipped, naps={**MODEL, "clip": 0.01}),
    Case(
        name="16-mixed (bf16 on the CPU)",
        do=partial(precision, name="16-mixed", becomes="bf16-mixed"),
        naps={**STEP, "clip": 0.005},
    ),
    Case(
        name="bf16-mixed",
        do=partial(precision, name="bf16-mixed", becomes="bf16-mixed"),
        naps={**STEP, "clip": 0.005},
    ),
    Case(name="16-mixed with a scaler", do=scaled, naps={**STEP, "clip": 0.005, "zero_grad": 0.007}),
    Case(name="training_step returns None", do=returns_none, naps={**STEP, "backward": 0.015}),
    Case(name='torch.compile(backend="eager")', do=compiled, naps={**STEP, "training_step": 0.03}),
    Case(
        name="scheduler, each step",
        do=partial(scheduled, interval="step", epochs=1),
        naps={**MODEL, "scheduler": 0.012},
    ),
    Case(
        name="scheduler, each epoch",
        do=partial(scheduled, interval="epoch", epochs=3),
        naps={"training_step": 0.005, "scheduler": 0.05},
    ),
    Case(name="a slow logger", do=logged, naps={**MODEL, "logger": 0.02}),
    Case(
        name="checkpoints in the epoch",
        do=partial(saved, every_n_train_steps=5),
        naps={**MODEL, "save": 0.05},
    ),
    Case(
        name="a checkpoint after the epoch",
        do=partial(saved, save_on_train_epoch_end=True),
        naps={**MODEL, "save": 0.1},
        places={"save": Place("checkpoint", "checkpoint")},
    ),
    Case(
        name="a callback's part of a checkpoint",
        do=partial(saved, every_n_train_steps=5),
        naps={**MODEL, "callback.on_save_checkpoint": 0.05},
        places={
            "callback.on_save_checkpoint": Place(
                "checkpoint", "checkpoint", "checkpoint", "PlantedCallback.on_save_checkpoint"
            )
        },
    ),
    Case(name="beside SimpleProfiler", do=beside_a_profiler, naps=ALL_PLACES),
    Case(name="pytorch_lightning", do=older_package, naps=STEP),
)
