"""Cases: what is around the steps: epochs, validation, hooks of the run, resuming, stopping, tuners, several fits."""

import math
from functools import partial
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
)
from lightning.pytorch.tuner.tuning import Tuner

from planted_loops.case import Case
from planted_loops.planting import loader, planted_data, planted_module
from planted_loops.run import Run

STEP = {"dataset": 0.012, "training_step": 0.010, "backward": 0.008, "optimizer": 0.006}
VALIDATION = {"training_step": 0.010, "dataset": 0.006, "val_dataset": 0.012, "validation_step": 0.008}
RUN_HOOKS = {
    "setup": 0.02,
    "on_fit_start": 0.03,
    "on_train_start": 0.04,
    "on_train_epoch_start": 0.025,
    "on_train_epoch_end": 0.035,
    "on_train_end": 0.05,
    "on_fit_end": 0.045,
}


def epochs(run: Run, count: int = 2, **options: Any) -> None:
    run.fit(max_epochs=count, steps=10 * count, **options)


def validated(run: Run, **options: Any) -> None:
    epochs = options.get("max_epochs", 1)
    run.fit(data=loader(run.naps, 8), val=loader(run.naps, 4, place="val_dataset"), steps=8 * epochs, **options)


def accumulation_scheduled(run: Run) -> None:
    run.fit(max_epochs=2, callbacks=[GradientAccumulationScheduler({0: 1, 1: 5})], steps=20, optimizer_steps=12)


def validated_in_manual_optimization(run: Run) -> None:
    module, batches = planted_module(run.naps, "manual"), loader(run.naps, 6)
    run.fit(module, batches, val=loader(run.naps, 4, place="val_dataset"), val_check_interval=3, steps=6)


def steps_limited(run: Run) -> None:
    run.fit(max_epochs=-1, max_steps=13, steps=13)


def nothing_to_train(run: Run) -> None:
    run.fit(limit_train_batches=0, steps=0)


def fast_dev_run(run: Run) -> None:
    run.fit(fast_dev_run=True, val=loader(run.naps, 4, place="val_dataset"), steps=1)


class _StopsAt(pl.Callback):
    """What EarlyStopping does, in mid-epoch."""

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        trainer.should_stop = args[-1] == 6


def stopped(run: Run) -> None:
    run.fit(callbacks=[_StopsAt()], steps=7)


def resumed(run: Run) -> None:
    """From the seventh batch of ten, into a second epoch."""
    folder = run.folder / "checkpoints"
    saver = ModelCheckpoint(dirpath=folder, every_n_train_steps=7, save_top_k=-1)
    run.trainer(callbacks=[saver], enable_checkpointing=True).fit(planted_module(run.naps), loader(run.naps, 10))
    (checkpoint,) = folder.iterdir()
    run.fit(ckpt_path=str(checkpoint), max_epochs=2, steps=13)


def fitted_twice(run: Run) -> None:
    """By one trainer, and then by another with the same profiler."""
    module = planted_module(run.naps)
    trainer = run.fit(module, steps=10)
    trainer.fit_loop.max_epochs = 3
    run.fit(module, trainer=trainer, steps=20)
    run.fit(module, trainer=run.trainer(trainer.callbacks[0]), steps=10)


def shared_callbacks(run: Run) -> None:
    """Trainers that are made before either of them runs."""
    shared = [run.profiler(), *run.planted_callbacks()]
    for trainer in [pl.Trainer(**{**run.settings(), "callbacks": shared}) for _ in range(2)]:
        run.fit(trainer=trainer, steps=10)


def learning_rate_tuned(run: Run) -> None:
    module, trainer = planted_module(run.naps), run.trainer()
    Tuner(trainer).lr_find(module, loader(run.naps, 10), num_training=5, update_attr=False)
    run.fit(module, trainer=trainer, steps=10, optimizer_steps=10)


def batch_size_tuned(run: Run) -> None:
    module, trainer, data = planted_module(run.naps), run.trainer(limit_val_batches=0), planted_data(run.naps, size=12)
    Tuner(trainer).scale_batch_size(module, datamodule=data, max_trials=1, steps_per_trial=2)
    run.fit(module, data, trainer=trainer, steps=math.ceil(12 / data.batch_size))


def learning_rate_found(run: Run) -> None:
    finder = LearningRateFinder(num_training_steps=5, update_attr=False)
    run.fit(callbacks=[finder], steps=10, optimizer_steps=10)


def batch_size_found(run: Run) -> None:
    data = planted_data(run.naps, size=12)
    run.fit(data=data, callbacks=[BatchSizeFinder(max_trials=1, steps_per_trial=2)], limit_val_batches=0)
    steps, wanted = run.measured[-1].report.steps.count, math.ceil(12 / data.batch_size)
    if steps != wanted:
        raise AssertionError(f"{steps} steps were found, there were {wanted}")


CASES = (
    Case(name="three epochs", do=partial(epochs, count=3), naps=STEP),
    Case(name="GradientAccumulationScheduler", do=accumulation_scheduled, naps=STEP),
    Case(name="max_steps", do=steps_limited, naps={"training_step": 0.01, "dataset": 0.008}),
    Case(name="no batches", do=nothing_to_train, naps={"callback.on_fit_start": 0.1}),
    Case(
        name="hooks of the run, module",
        do=epochs,
        naps={
            **{f"module.{hook}": nap for hook, nap in RUN_HOOKS.items()},
            "module.configure_optimizers": 0.06,
        },
    ),
    Case(
        name="hooks of the run, callback",
        do=epochs,
        naps={f"callback.{hook}": nap for hook, nap in RUN_HOOKS.items()},
    ),
    Case(
        name="teardown of module and callback",
        do=epochs,
        naps={"module.teardown": 0.1, "callback.teardown": 0.15},
    ),
    Case(name="validation", do=validated, naps=VALIDATION),
    Case(
        name="sanity check, two epochs",
        do=partial(validated, num_sanity_val_steps=2, max_epochs=2),
        naps={**VALIDATION, "val_dataset": 0.03},
    ),
    Case(
        name="val_check_interval=0.25",
        do=partial(validated, val_check_interval=0.25),
        naps=VALIDATION,
    ),
    Case(name="val_check_interval=4", do=partial(validated, val_check_interval=4), naps=VALIDATION),
    Case(
        name="check_val_every_n_epoch=2",
        do=partial(validated, check_val_every_n_epoch=2, max_epochs=4),
        naps=VALIDATION,
    ),
    Case(name="validation, manual optimization", do=validated_in_manual_optimization, naps=VALIDATION),
    Case(
        name="hooks of the validation",
        do=validated,
        naps={
            f"{owner}.{hook}": 0.02
            for owner in ("module", "callback")
            for hook in ("on_validation_start", "on_validation_epoch_end", "on_validation_batch_end")
        },
    ),
    Case(name="fast_dev_run", do=fast_dev_run, naps={name: nap * 10 for name, nap in VALIDATION.items()}),
    Case(name="should_stop in mid-epoch", do=stopped, naps=STEP),
    Case(name="resumed in mid-epoch", do=resumed, naps=STEP),
    Case(name="several fits in a process", do=fitted_twice, naps=STEP),
    Case(
        name="two trainers share their callbacks",
        do=shared_callbacks,
        naps={**STEP, "callback.on_train_batch_end": 0.009},
    ),
    Case(name="after Tuner.lr_find", do=learning_rate_tuned, naps=STEP),
    Case(name="after Tuner.scale_batch_size", do=batch_size_tuned, naps={**STEP, "training_step": 0.03}),
    Case(name="LearningRateFinder", do=learning_rate_found, naps=STEP),
    Case(name="BatchSizeFinder", do=batch_size_found, naps={**STEP, "training_step": 0.03}),
)
