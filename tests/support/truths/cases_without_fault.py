"""Cases: nothing is wrong, or only looks as if something were."""

from lightning_gpuprof.model.finding import VerdictKind
from truths.case import Case
from truths.faults_of_data import (
    cheap_transforms,
    chosen_slowly,
    fewer_epoch_steps,
    lengths,
    padded,
    prepared_after_the_move,
    rare_slow_items,
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
from truths.faults_of_steps import busy_thread, compiled, other_processes, sleep_in_forward, slow_start
from truths.fits import Fit
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
    Case(name="MLP", source=Fit(kind="mlp"), group="healthy", verdicts=_COMPUTES),
    Case(name="convolutions", source=Fit(kind="conv"), group="healthy", verdicts=_COMPUTES),
    Case(name="transformer", source=Fit(kind="transformer"), group="healthy", verdicts=_COMPUTES),
    Case(name="recurrent", source=Fit(kind="recurrent"), group="healthy", verdicts=_COMPUTES),
    *(
        Case(
            name=f"{name}, traced",
            source=Fit(kind=kind, steps=steps, traced=True),
            group="healthy",
            verdicts=_COMPUTES,
            must_judge=("python-overhead",),
        )
        for name, kind, steps in _MODELS
    ),
    Case(
        name="a sampler of one's own, a hook that does little, a thread that rests",
        source=Fit(
            kind="conv", faults=(chosen_slowly(0), prepared_after_the_move(0), busy_thread(rests=True)), steps=800
        ),
        group="healthy",
        must_judge=("sampler-slow", "transfer-hook-slow", "interpreter-lock"),
    ),
    Case(
        name="short steps, traced",
        source=Fit(kind="mlp", faults=(trainer(),), steps=4000, traced=True),
        group="healthy",
        must_judge=("python-overhead",),
    ),
    Case(
        name="recurrent, gradient clipping and logging, traced",
        source=Fit(kind="recurrent", faults=(csv_logger(), trainer(gradient_clip_val=1.0)), steps=2000, traced=True),
        group="healthy",
        verdicts=_COMPUTES,
        must_judge=("python-overhead",),
    ),
    Case(
        name="MLP as Lightning comes",
        source=Fit(kind="mlp", faults=(as_lightning_comes(),), traced=True),
        group="healthy",
    ),
    Case(
        name="convolutions, one worker",
        source=Fit(kind="conv", faults=(cheap_transforms(), workers(1))),
        group="healthy",
        verdicts=(*_COMPUTES, "input-bound"),  # receiving a batch takes 1 ms, of steps of 3 to 7 ms
    ),
    Case(
        name="MLP, two threads",
        source=Fit(kind="mlp", threads=2, steps=150),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="transformer, 4 batches accumulated",
        source=Fit(kind="transformer", faults=(trainer(accumulate_grad_batches=4, max_steps=60),), steps=240),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="convolutions, some validation",
        source=Fit(kind="conv", faults=(validation(5, epochs=2), csv_logger()), steps=240),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="MLP, compiled",
        source=Fit(kind="mlp", faults=(compiled(),)),
        group="healthy",
    ),
    Case(
        name="long steps",
        source=Fit(kind="recurrent", faults=(lengths(400),), steps=40),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="short steps",
        source=Fit(kind="mlp", faults=(trainer(),), steps=800),
        group="healthy",
    ),
    Case(
        name="recurrent, gradient clipping and logging",
        source=Fit(kind="recurrent", faults=(csv_logger(), trainer(gradient_clip_val=1.0))),
        group="healthy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="MLP in 4 epochs with checkpoints",
        source=Fit(kind="mlp", faults=(fewer_epoch_steps(4), checkpoints(100)), steps=400),
        group="healthy",
    ),
)

DECOYS: tuple[Case, ...] = (
    Case(
        name="four other processes compute",
        source=Fit(kind="conv", faults=(other_processes(4),), steps=120),
        group="decoy",
        verdicts=(*_COMPUTES, "mixed"),  # where they take most of the step, nothing of the run's own stands out
    ),
    Case(
        name="slow items that workers hide behind a long step",
        source=Fit(kind="recurrent", faults=(slow_items(1), workers(2), lengths(160)), steps=80),
        group="decoy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="rows of 25 to 50 tokens, padded to the longest of each batch",
        source=Fit(kind="transformer", faults=(padded(0, 50),), steps=200),
        group="decoy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="a callback of 0.1 ms",
        source=Fit(kind="conv", faults=(slow_callback(0.1, burns=True),)),
        group="decoy",
    ),
    Case(
        name="validation of a tenth of the run",
        source=Fit(kind="conv", faults=(validation(20, epochs=2),), steps=300),
        group="decoy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="one stall of 0.5 s",
        source=Fit(kind="recurrent", faults=(sleep_in_forward(500, every=120),), steps=200),
        group="decoy",
        allowed=(),
    ),
    Case(
        name="two slow first steps",
        source=Fit(kind="mlp", faults=(slow_start(300, steps=2),), steps=250),
        group="decoy",
    ),
    Case(
        name="sequences of two lengths",
        source=Fit(kind="recurrent", faults=(lengths(24, 32),)),
        group="decoy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="one slow batch in a hundred, hidden by workers",
        source=Fit(
            kind="recurrent", faults=(rare_slow_items(30, every_batches=100), workers(2), lengths(160)), steps=110
        ),
        group="decoy",
        verdicts=_COMPUTES,
    ),
    Case(
        name="a short summary after each of two epochs",
        source=Fit(kind="transformer", faults=(slow_epoch_end(20, epochs=2),)),
        group="decoy",
        verdicts=_COMPUTES,
    ),
)
