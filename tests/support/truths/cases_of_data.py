"""Cases: the input pipeline."""

from truths.case import Case
from truths.faults_of_data import (
    changing_items,
    chosen_slowly,
    late_workers,
    lengths,
    moved_slowly,
    of_objects,
    padded,
    prepared_after_the_move,
    rare_slow_items,
    single_samples,
    slow_collate,
    slow_items,
    slow_transform,
    streamed,
    threads_in_workers,
    workers,
)
from truths.fits import fit

WORK_OF_ITEMS = ("transform-hotspot", "loader-cpu-bound")
INPUT = ("single-process-loading", "input-bound")
FEW = ("too-few-workers", "loader-io-bound")

DATA: tuple[Case, ...] = (
    Case(
        name="items of 2 ms, no workers",
        source=fit("mlp", slow_items(2), steps=60),
        expected=(("single-process-loading",),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
        of_peers=True,
    ),
    Case(
        name="items of 10 ms, no workers",
        source=fit("conv", slow_items(10), steps=50),
        expected=(("single-process-loading",),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="items of 1 ms, no workers",
        source=fit("transformer", slow_items(1), steps=150),
        expected=(("single-process-loading",),),
        verdicts=("input-bound", "mixed"),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="items of 0.3 ms, no workers",
        source=fit("recurrent", slow_items(0.3), steps=200),
        expected=(("single-process-loading", "input-bound"),),
        allowed=("loader-io-bound",),
    ),
    Case(
        name="items compute 1 ms, no workers",
        source=fit("recurrent", slow_items(1, burns=True), steps=150),
        expected=(("single-process-loading", "input-bound", *WORK_OF_ITEMS),),
        verdicts=("input-bound", "mixed"),
    ),
    *(
        Case(name=name, source=source, expected=(FEW,), verdicts=("input-bound",), cure="workers")
        for name, source in (
            ("items of 4 ms, one worker", fit("transformer", slow_items(4), workers(1), steps=90)),
            ("items of 15 ms, one worker", fit("conv", slow_items(15), workers(1), steps=40)),
            ("items of 8 ms, two workers", fit("recurrent", slow_items(8), workers(2), steps=80)),
        )
    ),
    Case(
        name="items of 3 ms, four workers",
        source=fit("mlp", slow_items(3), workers(4), steps=250),
        expected=(FEW,),
        verdicts=("input-bound",),
        allowed=("step-outliers", "input-bound", "cpu-contention", "cpu-oversubscription"),
        cure="workers of bursts",
    ),
    Case(
        name="transform computes 1.5 ms, no workers",
        source=fit("conv", slow_transform(1.5), steps=120),
        expected=(("transform-hotspot", "single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=WORK_OF_ITEMS,
    ),
    Case(
        name="transform computes 4 ms, two workers",
        source=fit("transformer", slow_transform(4), workers(2), steps=80),
        expected=(WORK_OF_ITEMS,),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "input-bound", "cpu-contention"),
    ),
    Case(
        name="collate computes 12 ms, no workers",
        source=fit("mlp", slow_collate(12), steps=100),
        expected=(("collate-hotspot", "single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=("collate-hotspot", "loader-cpu-bound"),
    ),
    Case(
        name="collate computes 25 ms, one worker",
        source=fit("recurrent", slow_collate(25), workers(1), steps=80),
        expected=(("collate-hotspot",),),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "loader-cpu-bound", "input-bound", "cpu-contention"),
    ),
    Case(
        name="12 workers on few CPUs",
        source=fit("transformer", slow_items(2, burns=True), workers(12), steps=150),
        expected=(("too-many-workers", "cpu-contention", "cpu-oversubscription"),),
        allowed=("loader-cpu-bound", "input-bound", "slow-first-steps", "cpu-contention", "step-outliers"),
    ),
    Case(
        name="workers start anew in 5 epochs, 0.3 s each",
        source=fit("mlp", late_workers(300, epochs=5), steps=150),
        expected=(("worker-startup",),),
        cure="persistent workers",
    ),
    Case(
        name="12 stalls of 0.4 s in the dataset",
        source=fit("mlp", rare_slow_items(400, every_batches=25), steps=300),
        expected=(("step-outliers", "input-jitter"),),
        verdicts=("input-bound",),
        allowed=("single-process-loading", "input-jitter"),
        of_peers=True,
    ),
    Case(
        name="every 16th batch takes 0.2 s, 4 workers",
        source=fit("transformer", rare_slow_items(200, every_batches=16), workers(4, prefetch_factor=1), steps=240),
        expected=(("input-jitter", "step-outliers"),),
        verdicts=("input-bound",),
        allowed=("too-few-workers", "input-bound", "loader-io-bound"),
    ),
    Case(
        name="items slow, then fast",
        source=fit("conv", changing_items(3, 0), steps=200),
        expected=(("phase-change", *INPUT),),
        allowed=(*INPUT, "loader-io-bound"),
        of_peers=True,
    ),
    Case(
        name="items fast, then slow",
        source=fit("recurrent", changing_items(0, 3), steps=200),
        expected=(("phase-change", *INPUT),),
        allowed=(*INPUT, "loader-io-bound"),
    ),
    Case(
        name="stream of items of 3 ms",
        source=fit("recurrent", slow_items(3), streamed(), steps=100),
        expected=(("single-process-loading", "input-bound"),),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
        cure="workers",
    ),
    Case(
        name="batches move slowly to the device",
        source=fit("conv", moved_slowly(8), steps=150),
        expected=(("transfer-hook-slow",),),
        verdicts=("transfer-bound",),
        allowed=("blocked-in-step",),
    ),
    Case(
        name="on_after_batch_transfer computes 8 ms",
        source=fit("transformer", prepared_after_the_move(8), steps=150),
        expected=(("transfer-hook-slow",),),
        verdicts=("transfer-bound",),
    ),
    Case(
        name="batches of 5,000 pairs of numbers",
        source=fit("conv", of_objects(5000), steps=150),
        expected=(("batch-of-objects",),),
        verdicts=("transfer-bound", "compute-bound", "mixed"),
    ),
    Case(
        name="the sampler takes 8 ms a batch",
        source=fit("mlp", chosen_slowly(8), steps=150),
        expected=(("sampler-slow",),),
        verdicts=("input-bound",),
    ),
    Case(
        name="the sampler computes 8 ms a batch, two workers",
        source=fit("conv", chosen_slowly(8, burns=True), workers(2), steps=150),
        expected=(("sampler-slow",),),
        verdicts=("input-bound",),
    ),
    Case(
        name="single samples from two workers",
        source=fit("mlp", single_samples(), workers(2), steps=1500),
        expected=(("small-batch-loader",),),
        verdicts=("input-bound",),
        allowed=(*INPUT, "barebones-gap", "cpu-contention"),
    ),
    Case(
        name="two workers with four threads each",
        source=fit("mlp", threads_in_workers(4), workers(2), steps=260),
        expected=(("worker-thread-oversub",),),
        verdicts=("input-bound",),
        allowed=(*INPUT, *WORK_OF_ITEMS, *FEW, "cpu-contention", "cpu-oversubscription", "step-outliers"),
    ),
    Case(
        name="rows of 25 to 50 tokens, padded to 256",
        source=fit("transformer", padded(256, 50), steps=100),
        expected=(("padding-waste",),),
        verdicts=("compute-bound",),
    ),
    Case(
        name="sequences of 16 lengths",
        source=fit("recurrent", lengths(*range(8, 200, 12)), steps=200),
        expected=(("dynamic-shapes",),),
        verdicts=("compute-bound",),
        allowed=("step-outliers",),
    ),
)
