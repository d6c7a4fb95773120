"""Cases: the input pipeline."""

from __future__ import annotations

from truths.case import Case
from truths.faults_of_data import (
    changing_items,
    late_workers,
    lengths,
    moved_slowly,
    rare_slow_items,
    single_samples,
    slow_collate,
    slow_items,
    slow_transform,
    streamed,
    threads_in_workers,
    workers,
)
from truths.fits import Fit

WORK_OF_ITEMS = ("transform-hotspot", "loader-cpu-bound")
INPUT = ("single-process-loading", "input-bound")
FEW = ("too-few-workers", "loader-io-bound")

DATA: tuple[Case, ...] = (
    Case(
        name="items of 2 ms, no workers",
        source=Fit(kind="mlp", faults=(slow_items(2),), steps=60),
        expected=(("single-process-loading",),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
        of_peers=True,
    ),
    Case(
        name="items of 10 ms, no workers",
        source=Fit(kind="conv", faults=(slow_items(10),), steps=50),
        expected=(("single-process-loading",),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="items of 1 ms, no workers",
        source=Fit(kind="transformer", faults=(slow_items(1),), steps=150),
        expected=(("single-process-loading",),),
        verdicts=("input-bound", "mixed"),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="items of 0.3 ms, no workers",
        source=Fit(kind="recurrent", faults=(slow_items(0.3),), steps=200),
        expected=(("single-process-loading", "input-bound"),),
        allowed=("loader-io-bound",),
    ),
    Case(
        name="items compute 1 ms, no workers",
        source=Fit(kind="recurrent", faults=(slow_items(1, burns=True),), steps=150),
        expected=(("single-process-loading", "input-bound", *WORK_OF_ITEMS),),
        verdicts=("input-bound", "mixed"),
    ),
    Case(
        name="items of 4 ms, one worker",
        source=Fit(kind="transformer", faults=(slow_items(4), workers(1)), steps=90),
        expected=(FEW,),
        verdicts=("input-bound",),
        cure="workers",
    ),
    Case(
        name="items of 15 ms, one worker",
        source=Fit(kind="conv", faults=(slow_items(15), workers(1)), steps=40),
        expected=(FEW,),
        verdicts=("input-bound",),
        cure="workers",
    ),
    Case(
        name="items of 8 ms, two workers",
        source=Fit(kind="recurrent", faults=(slow_items(8), workers(2)), steps=80),
        expected=(FEW,),
        verdicts=("input-bound",),
        cure="workers",
    ),
    Case(
        name="items of 3 ms, four workers",
        source=Fit(kind="mlp", faults=(slow_items(3), workers(4)), steps=250),
        expected=(FEW,),
        verdicts=("input-bound",),
        allowed=("step-outliers", "input-bound", "cpu-contention", "cpu-oversubscription"),
        cure="workers of bursts",
    ),
    Case(
        name="transform computes 1.5 ms, no workers",
        source=Fit(kind="conv", faults=(slow_transform(1.5),), steps=120),
        expected=(("transform-hotspot", "single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=WORK_OF_ITEMS,
    ),
    Case(
        name="transform computes 4 ms, two workers",
        source=Fit(kind="transformer", faults=(slow_transform(4), workers(2)), steps=80),
        expected=(WORK_OF_ITEMS,),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "input-bound", "cpu-contention"),
    ),
    Case(
        name="collate computes 12 ms, no workers",
        source=Fit(kind="mlp", faults=(slow_collate(12),), steps=100),
        expected=(("collate-hotspot", "single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=("collate-hotspot", "loader-cpu-bound"),
    ),
    Case(
        name="collate computes 25 ms, one worker",
        source=Fit(kind="recurrent", faults=(slow_collate(25), workers(1)), steps=80),
        expected=(("collate-hotspot",),),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "loader-cpu-bound", "input-bound", "cpu-contention"),
    ),
    Case(
        name="12 workers on few CPUs",
        source=Fit(kind="transformer", faults=(slow_items(2, burns=True), workers(12)), steps=150),
        expected=(("too-many-workers", "cpu-contention"),),
        allowed=("loader-cpu-bound", "input-bound", "slow-first-steps", "cpu-contention", "step-outliers"),
    ),
    Case(
        name="workers start anew in 5 epochs, 0.3 s each",
        source=Fit(kind="mlp", faults=(late_workers(300, epochs=5),), steps=150),
        expected=(("worker-startup",),),
        cure="persistent workers",
    ),
    Case(
        name="12 stalls of 0.4 s in the dataset",
        source=Fit(kind="mlp", faults=(rare_slow_items(400, every_batches=25),), steps=300),
        expected=(("step-outliers", "input-jitter"),),
        verdicts=("input-bound",),
        allowed=("single-process-loading", "input-jitter"),
        of_peers=True,
    ),
    Case(
        name="every 16th batch takes 0.2 s, 4 workers",
        source=Fit(
            kind="transformer",
            faults=(rare_slow_items(200, every_batches=16), workers(4, prefetch_factor=1)),
            steps=240,
        ),
        expected=(("input-jitter", "step-outliers"),),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "input-bound", "loader-io-bound"),
    ),
    Case(
        name="items slow, then fast",
        source=Fit(kind="conv", faults=(changing_items(3, 0),), steps=200),
        expected=(("phase-change",),),
        allowed=(*INPUT, "loader-io-bound"),
        of_peers=True,
    ),
    Case(
        name="items fast, then slow",
        source=Fit(kind="recurrent", faults=(changing_items(0, 3),), steps=200),
        expected=(("phase-change",),),
        allowed=(*INPUT, "loader-io-bound"),
    ),
    Case(
        name="stream of items of 3 ms",
        source=Fit(kind="recurrent", faults=(slow_items(3), streamed()), steps=100),
        expected=(("single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="batches move slowly to the device",
        source=Fit(kind="conv", faults=(moved_slowly(8),), steps=150),
        expected=(("blocked-in-step",),),
        verdicts=("transfer-bound",),
    ),
    Case(
        name="single samples from two workers",
        source=Fit(kind="mlp", faults=(single_samples(), workers(2)), steps=1500),
        expected=(("small-batch-loader",),),
        verdicts=("input-bound",),
        allowed=(*INPUT, "barebones-gap", "cpu-contention"),
    ),
    Case(
        name="two workers with four threads each",
        source=Fit(kind="mlp", faults=(threads_in_workers(4), workers(2)), steps=260),
        expected=(("worker-thread-oversub",),),
        verdicts=("input-bound",),
        allowed=(*INPUT, *WORK_OF_ITEMS, *FEW, "cpu-contention", "cpu-oversubscription", "step-outliers"),
    ),
    Case(
        name="sequences of 12 lengths",
        source=Fit(kind="recurrent", faults=(lengths(*range(8, 200, 16)),), steps=200),
        expected=(("dynamic-shapes",),),
        verdicts=("compute-bound",),
        allowed=("step-outliers",),
    ),
)
