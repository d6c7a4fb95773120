"""Cases: where batches come from, how many there are, workers, DataModules."""

import multiprocessing
import time
from functools import partial
from typing import Any

from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor
from torch.utils.data import DataLoader

from planted_loops.case import Case
from planted_loops.naps import Naps
from planted_loops.places import Place, in_step
from planted_loops.planting import Rows, Stream, loader, planted_data, planted_module
from planted_loops.run import Run

STEP = {"dataset": 0.012, "training_step": 0.010, "backward": 0.008, "optimizer": 0.006}


def batches_of_two(run: Run) -> None:
    run.fit(data=loader(run.naps, 16, batch_size=2), steps=8)


def unsized(run: Run, **options: Any) -> None:
    run.fit(data=DataLoader(Stream(8, run.naps), batch_size=1), **options)


def from_iterator(run: Run) -> None:
    run.fit(planted_module(run.naps, "dataloader_iter"), steps=10)


def combined(run: Run, mode: str, steps: int) -> None:
    loaders = {"a": loader(run.naps, 10), "b": loader(run.naps, 5)}
    run.fit(data=CombinedLoader(loaders, mode), steps=steps)  # type: ignore[arg-type]


def several_to_validate(run: Run) -> None:
    both = [loader(run.naps, 4, place="val_dataset"), loader(run.naps, 2, place="val_dataset")]
    run.fit(val=CombinedLoader(both, "sequential"), steps=10)


def limited(run: Run, limit: float, steps: int) -> None:
    run.fit(limit_train_batches=limit, steps=steps)


def overfitted(run: Run) -> None:
    run.fit(overfit_batches=4, max_epochs=2, steps=8)


class _OneIsSkipped(Rows):
    """The batch with this number is fetched, but never trained on."""

    skipped = 5

    def __getitem__(self, index: int) -> Tensor:
        self.naps.take(self.place, counts_as="skipped dataset" if index == self.skipped else "")
        return self.row(index)


def left_early(run: Run) -> None:
    module = planted_module(run.naps)
    module.on_train_batch_start = lambda batch, batch_idx: -1 if batch_idx == _OneIsSkipped.skipped else None
    run.fit(module, DataLoader(_OneIsSkipped(10, run.naps), batch_size=1), steps=_OneIsSkipped.skipped)


def start_of_a_worker(naps: Naps, slept_s: Any, worker: int) -> None:
    """Runs in the worker; what it slept goes through shared memory."""
    begin = time.perf_counter()
    naps.take("worker")
    slept_s.value += time.perf_counter() - begin


def with_workers(run: Run, **settings: Any) -> None:
    run.naps.name = str
    slept_s = multiprocessing.Value("d", 0.0)
    data = loader(run.naps, 10, num_workers=1, worker_init_fn=partial(start_of_a_worker, run.naps, slept_s), **settings)
    trainer, module = run.trainer(max_epochs=2), planted_module(run.naps)

    def work() -> None:
        trainer.fit(module, data)
        run.naps.add("worker", slept_s.value)

    run.measure(trainer, work, steps=20)


def data_module(run: Run, **options: Any) -> None:
    epochs = options.get("max_epochs", 1)
    run.fit(data=planted_data(run.naps, size=10), steps=10 * epochs, **options)


CASES = (
    Case(name="batches of two rows", do=batches_of_two, naps={**STEP, "dataset": 0.008, "collate": 0.005}),
    Case(name="unsized iterable", do=partial(unsized, steps=8), naps={**STEP, "first fetch": 0.1}),
    Case(
        name="unsized iterable, two epochs",
        do=partial(unsized, max_epochs=2, steps=16),
        naps={"dataset": 0.02, "training_step": 0.012, "first fetch": 0.1},
    ),
    Case(
        name="unsized iterable, limited",
        do=partial(unsized, limit_train_batches=5, steps=5),
        naps={**STEP, "first fetch": 0.05},
        # Limited, it has a length, and nothing is fetched ahead.
        places={"first fetch": in_step("data_wait")},
    ),
    Case(name="dataloader_iter", do=from_iterator, naps=STEP),
    *(
        Case(name=f"CombinedLoader, {mode}", do=partial(combined, mode=mode, steps=steps), naps=STEP)
        for mode, steps in (("max_size_cycle", 10), ("max_size", 10), ("min_size", 5))
    ),
    Case(
        name="CombinedLoader, sequential, to validate",
        do=several_to_validate,
        naps={"training_step": 0.01, "val_dataset": 0.015, "validation_step": 0.008},
    ),
    Case(name="limit_train_batches=6", do=partial(limited, limit=6, steps=6), naps=STEP),
    Case(name="limit_train_batches=0.5", do=partial(limited, limit=0.5, steps=5), naps=STEP),
    Case(name="overfit_batches", do=overfitted, naps=STEP),
    Case(
        name="on_train_batch_start returns -1",
        do=left_early,
        naps={"dataset": 0.02, "training_step": 0.015},
        # The batch that is skipped is no step.
        places={"skipped dataset": Place("epoch_gap", "data_wait")},
    ),
    Case(
        name="iterators are made slowly",
        do=lambda run: run.fit(max_epochs=2, steps=20),
        naps={"iter": 0.1, "training_step": 0.007},
    ),
    Case(
        name="workers, two epochs",
        do=with_workers,
        naps={"worker": 0.4, "training_step": 0.01},
        approximate=frozenset({"worker"}),
    ),
    Case(
        name="persistent workers, two epochs",
        do=partial(with_workers, persistent_workers=True),
        naps={"worker": 0.5, "training_step": 0.01},
        approximate=frozenset({"worker"}),
    ),
    Case(
        name="a DataModule's hooks",
        do=data_module,
        naps={
            "dataset": 0.012,
            "datamodule.prepare_data": 0.03,
            "datamodule.setup": 0.04,
            "datamodule.train_dataloader": 0.05,
            "datamodule.on_before_batch_transfer": 0.006,
            "datamodule.on_after_batch_transfer": 0.008,
            "datamodule.teardown": 0.07,
        },
    ),
    Case(
        name="loaders made anew each epoch",
        do=partial(data_module, max_epochs=2, reload_dataloaders_every_n_epochs=1),
        naps={"dataset": 0.01, "iter": 0.06},
    ),
)
