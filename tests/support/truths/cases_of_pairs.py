"""Cases: two faults at once; the larger one comes first."""

from truths.case import Case
from truths.faults_of_data import slow_items, workers
from truths.faults_of_loops import checkpoints, slow_callback, slow_logger, validation
from truths.faults_of_steps import sleep_in_forward
from truths.fits import fit

PAIRS: tuple[Case, ...] = (
    Case(
        name="items of 4 ms and a callback of 8 ms",
        source=fit("transformer", slow_items(4), slow_callback(8), steps=80),
        group="pair",
        expected=(("single-process-loading",), ("callback-slow",)),
        verdicts=("input-bound",),
        allowed=("loader-io-bound",),
    ),
    Case(
        name="callback of 30 ms and a sleep of 18 ms in training_step",
        source=fit("conv", slow_callback(30), sleep_in_forward(18), steps=80),
        group="pair",
        expected=(("callback-slow",), ("blocked-in-step",)),
        verdicts=("loop-bound",),
    ),
    Case(
        name="validation of 0.5 s and items of 2 ms",
        source=fit("recurrent", validation(20, ms=25, epochs=5), slow_items(2), steps=75),
        group="pair",
        expected=(("validation-stall",), ("single-process-loading",)),
        verdicts=("outside-steps", "mixed"),
        allowed=("loader-io-bound",),
    ),
    Case(
        name="checkpoints of 0.3 s and a logger of 10 ms",
        source=fit("mlp", checkpoints(10, ms=300), slow_logger(10), steps=80),
        group="pair",
        expected=(("checkpoint-stall",), ("logging-overhead",)),
        verdicts=("outside-steps", "mixed"),
    ),
    Case(
        name="one worker with items of 8 ms and a sleep of 20 ms in training_step",
        source=fit("recurrent", slow_items(8), workers(1), sleep_in_forward(20), steps=60),
        group="pair",
        expected=(("too-few-workers", "loader-io-bound"), ("blocked-in-step",)),
        verdicts=("input-bound",),
    ),
    Case(
        name="a sleep of 30 ms in training_step and a callback of 8 ms",
        source=fit("transformer", sleep_in_forward(30), slow_callback(8), steps=70),
        group="pair",
        expected=(("blocked-in-step",), ("callback-slow",)),
        verdicts=("host-bound",),
    ),
)
