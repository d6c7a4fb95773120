"""Cases: nothing is wrong, or only looks as if something were."""

from lightning_gpuprof.model.finding import VerdictKind
from truths.case import Case
from truths.faults_of_data import (
    cheap_transforms,
    chosen_slowly,
    fewer_epoch_steps,
    half_last_batch,
    lengths,
    padded,
    prepared_after_the_move,
    rare_slow_items,
    read_from_disk,
    slow_items,
    workers,
)
from truths.faults_of_loops import (
    as_lightning_comes,
    checkpoints,
    csv_logger,
    slow_callback,
    slow_epoch_end,
    trainer,
    validation,
)
from truths.faults_of_steps import (
    busy_thread,
    compiled,
    metric_in_forward,
    other_processes,
    overridden_zero_grad,
    sleep_in_forward,
    slow_start,
)
from truths.fits import fit
from truths.models import Kind

_MODELS: tuple[tuple[str, Kind, int], ...] = (
    ("MLP", "mlp", 4000),
    ("convolutions", "conv", 2500),
    ("transformer", "transformer", 2000),
    ("recurrent", "recurrent", 2000),
)
"""Name, kind and steps: for seconds, because rules about Python ask for twenty steps with CPU times."""
_COMPUTES: tuple[VerdictKind, ...] = ("compute-bound",)

HEALTHY: tuple[Case, ...] = (
    *(
        Case(name=name, source=source, group="healthy", verdicts=_COMPUTES)
        for name, source in (
            ("MLP", fit("mlp")),
            ("convolutions", fit("conv")),
            ("transformer", fit("transformer")),
            ("recurrent", fit("recurrent")),
            ("MLP, two threads", fit("mlp", threads=2, steps=150)),
            (
                "transformer, 4 batches accumulated",
                fit("transformer", trainer(accumulate_grad_batches=4, max_steps=60), steps=240),
            ),
            ("convolutions, some validation", fit("conv", validation(5, epochs=2), csv_logger(), steps=240)),
            ("long steps", fit("recurrent", lengths(400), steps=40)),
            (
                "recurrent, gradient clipping and logging",
                fit("recurrent", csv_logger(), trainer(gradient_clip_val=1.0)),
            ),
        )
    ),
    *(
        Case(
            name=f"{name}, traced",
            source=fit(kind, steps=steps, traced=True),
            group="healthy",
            verdicts=_COMPUTES,
            must_judge=("python-overhead",),
        )
        for name, kind, steps in _MODELS
    ),
    Case(
        name="a sampler of one's own, a hook that does little, a thread that rests",
        source=fit("conv", chosen_slowly(0), prepared_after_the_move(0), busy_thread(rests=True), steps=800),
        group="healthy",
        must_judge=("sampler-slow", "transfer-hook-slow", "interpreter-lock"),
    ),
    Case(
        name="training_step only updates a metric",
        source=fit("mlp", metric_in_forward(100_000, only_updates=True), steps=150, traced=True),
        group="healthy",
        verdicts=_COMPUTES,
        must_judge=("metric-compute-each-step",),
    ),
    Case(
        name="short steps, traced",
        source=fit("mlp", trainer(), steps=4000, traced=True),
        group="healthy",
        must_judge=("python-overhead",),
    ),
    Case(
        name="recurrent, gradient clipping and logging, traced",
        source=fit("recurrent", csv_logger(), trainer(gradient_clip_val=1.0), steps=2000, traced=True),
        group="healthy",
        verdicts=_COMPUTES,
        must_judge=("python-overhead",),
    ),
    *(
        Case(name=name, source=source, group="healthy")
        for name, source in (
            ("MLP as Lightning comes", fit("mlp", as_lightning_comes(), traced=True)),
            ("MLP, compiled", fit("mlp", compiled())),
            ("short steps", fit("mlp", trainer(), steps=800)),
            ("MLP in 4 epochs with checkpoints", fit("mlp", fewer_epoch_steps(4), checkpoints(100), steps=400)),
        )
    ),
    Case(
        name="transformer, one window in 1,000 steps",
        source=fit("transformer", lengths(192), steps=1000, traced=True),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="each epoch reads what is in memory",
        source=fit("recurrent", read_from_disk(1, epochs=5, cached=True), workers(1), lengths(160), steps=300),
        group="healthy",
        must_judge=("page-cache-miss",),
    ),
    Case(
        name="convolutions, one worker",
        source=fit("conv", cheap_transforms(), workers(1)),
        group="healthy",
        verdicts=(*_COMPUTES, "input-bound"),  # receiving a batch takes 1 ms, of steps of 3 to 7 ms
    ),
)

DECOYS: tuple[Case, ...] = (
    Case(
        name="four other processes compute",
        source=fit("conv", other_processes(4), steps=120),
        group="decoy",
        verdicts=(*_COMPUTES, "mixed"),  # where they take most of the step, nothing of the run's own stands out
    ),
    *(
        Case(name=name, source=source, group="decoy", verdicts=_COMPUTES)
        for name, source in (
            (
                "slow items that workers hide behind a long step",
                fit("recurrent", slow_items(1), workers(2), lengths(160), steps=80),
            ),
            (
                "rows of 25 to 50 tokens, padded to the longest of each batch",
                fit("transformer", padded(0, 50), steps=200),
            ),
            ("validation of a tenth of the run", fit("conv", validation(20, epochs=2), steps=300)),
            ("sequences of two lengths", fit("recurrent", lengths(24, 32))),
            (
                "half a batch ends each of 20 epochs",
                fit("recurrent", half_last_batch(20), lengths(64), steps=200),
            ),
            (
                "one slow batch in a hundred, hidden by workers",
                fit("recurrent", rare_slow_items(30, every_batches=100), workers(2), lengths(160), steps=110),
            ),
            (
                "zero_grad is overridden and sets large gradients to None",
                fit("mlp", overridden_zero_grad(2048, zeros=False), steps=120),
            ),
            ("a short summary after each of two epochs", fit("transformer", slow_epoch_end(20, epochs=2))),
        )
    ),
    Case(name="a callback of 0.1 ms", source=fit("conv", slow_callback(0.1, burns=True)), group="decoy"),
    Case(name="two slow first steps", source=fit("mlp", slow_start(300, steps=2), steps=250), group="decoy"),
    Case(
        name="one stall of 0.5 s",
        source=fit("recurrent", sleep_in_forward(500, every=120), steps=200),
        group="decoy",
    ),
)
