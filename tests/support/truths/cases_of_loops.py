"""Cases: what happens around the model and beside the steps."""

from truths.case import Case
from truths.faults_of_data import lengths, slow_batch, workers
from truths.faults_of_loops import (
    checkpoints,
    csv_logger,
    many_values,
    module_hook,
    sanity_check,
    slow_callback,
    slow_epoch_end,
    slow_logger,
    slow_scheduler,
    slow_validation_items,
    trainer,
    validation,
    windows_with_stacks,
)
from truths.fits import fit

LOOPS: tuple[Case, ...] = (
    Case(
        name="callback sleeps 20 ms after each batch",
        source=fit("mlp", slow_callback(20), steps=100),
        expected=(("callback-slow",),),
        verdicts=("loop-bound",),
        cure="callback",
        of_peers=True,
    ),
    Case(
        name="callback sleeps 4 ms before each batch",
        source=fit("conv", slow_callback(4, hook="on_train_batch_start"), steps=200),
        expected=(("callback-slow",),),
        verdicts=("loop-bound", "mixed", "compute-bound"),
        cure="callback",
    ),
    Case(
        name="callback sleeps 20 ms beside a worker that needs 14 ms for a batch",
        source=fit("mlp", slow_callback(20), slow_batch(14), workers(1), steps=150),
        expected=(("callback-slow",),),
        verdicts=("loop-bound",),
        cure="callback",
    ),
    Case(
        name="callback sleeps 15 ms before the optimizer",
        source=fit("recurrent", slow_callback(15, hook="on_before_optimizer_step"), steps=100),
        expected=(("callback-slow",),),
        verdicts=("loop-bound",),
        cure="callback",
    ),
    Case(
        name="callback computes 10 ms after backward",
        source=fit("transformer", slow_callback(10, hook="on_after_backward", burns=True), steps=120),
        expected=(("callback-slow",),),
        verdicts=("loop-bound", "mixed"),
        cure="callback",
    ),
    Case(
        name="callback sleeps 60 ms every 5th batch",
        source=fit("conv", slow_callback(60, every=5), steps=200),
        expected=(("callback-slow", "step-outliers"),),
        verdicts=("loop-bound",),
    ),
    Case(
        name="the module's own hook sleeps 12 ms",
        source=fit("mlp", module_hook(12), steps=120),
        expected=(("callback-slow",),),
        verdicts=("loop-bound",),
    ),
    Case(
        name="60 values logged in each step",
        source=fit("mlp", many_values(60), csv_logger(every=1), steps=60),
        expected=(("logging-overhead",),),
        verdicts=("loop-bound", "mixed"),
    ),
    Case(
        name="logger waits 10 ms in each step",
        source=fit("transformer", slow_logger(10), steps=120),
        expected=(("logging-overhead",),),
        verdicts=("loop-bound", "mixed"),
        cure="logging",
    ),
    Case(
        name="logger waits 60 ms every 5th step",
        source=fit("recurrent", slow_logger(60, every=5), steps=200),
        expected=(("logging-overhead", "step-outliers"),),
        verdicts=("loop-bound",),
        cure="logging",
    ),
    Case(
        name="validation takes 3.0 s of 3.3 s",
        source=fit("mlp", validation(10, ms=15, epochs=20), steps=100),
        expected=(("validation-stall",),),
        verdicts=("outside-steps",),
        cure="validation",
        of_peers=True,
    ),
    Case(
        name="validation every 40 steps, 0.3 s",
        source=fit("conv", validation(20, ms=15, every=40), steps=200),
        expected=(("validation-stall",),),
        verdicts=("outside-steps", "compute-bound"),
    ),
    Case(
        name="validation waits for its samples",
        source=fit("mlp", slow_validation_items(8, ms=1.5, epochs=10), steps=100),
        expected=(("val-input-bound",),),
        verdicts=("outside-steps",),
        allowed=("validation-stall",),
    ),
    Case(
        name="the learning rate takes 4 ms in each step",
        source=fit("recurrent", slow_scheduler(4), steps=150),
        expected=(("lr-scheduler-cost",),),
    ),
    Case(
        name="validation of real work in 6 epochs",
        source=fit("transformer", validation(120, epochs=6), steps=180),
        expected=(("validation-stall",),),
        verdicts=("outside-steps",),
        cure="validation",
    ),
    Case(
        name="checkpoints of 0.2 s every 20 steps",
        source=fit("mlp", checkpoints(20, ms=200), steps=160),
        expected=(("checkpoint-stall",),),
        verdicts=("outside-steps",),
        cure="checkpoint",
    ),
    Case(
        name="large checkpoints every 15 steps",
        source=fit("recurrent", checkpoints(15, megabytes=96), steps=120),
        expected=(("checkpoint-stall",),),
        verdicts=("outside-steps",),
        allowed=("step-outliers",),  # deleting the checkpoint before takes ModelCheckpoint's hook 50 ms
        cure="checkpoint",
    ),
    Case(
        name="sanity check of 2 s",
        source=fit("conv", sanity_check(40, ms=50), steps=120),
        expected=(("sanity-check-cost",),),
    ),
    Case(
        name="callback takes 0.5 s after each of 6 epochs",
        source=fit("recurrent", slow_epoch_end(500, epochs=6), steps=90),
        expected=(("epoch-boundary-idle",),),
        verdicts=("outside-steps",),
    ),
    Case(
        name="a window with stacks every 200 steps",
        source=fit("transformer", windows_with_stacks(every=200), lengths(192), steps=1000),
        expected=(("profiler-overhead",),),
        verdicts=("compute-bound",),
    ),
    Case(
        name="anomaly detection is on",
        source=fit("mlp", trainer(detect_anomaly=True), steps=150),
        expected=(("debug-apis-on",),),
    ),
)
