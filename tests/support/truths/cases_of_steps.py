"""Cases: inside the step, and in the process around it."""

from truths.case import Case
from truths.faults_of_data import lengths
from truths.faults_of_steps import (
    burn_in_forward,
    burn_in_network,
    busy_thread,
    changing_forward,
    clipped,
    compiled,
    functional_with_sleep,
    garbage,
    growing_work,
    held_lock,
    leak,
    many_parameters,
    metric_in_forward,
    overridden_zero_grad,
    reads_a_pipe,
    sleep_in_backward,
    sleep_in_forward,
    sleep_in_optimizer,
    slow_start,
)
from truths.fits import fit

BLOCKED = (("blocked-in-step",),)

STEPS: tuple[Case, ...] = (
    Case(
        name="a gradient of 16 MB is filled with zeros in each step",
        source=fit("mlp", overridden_zero_grad(2048, zeros=True), steps=120),
        expected=(("zero-grad-memset",),),
        verdicts=("compute-bound",),
    ),
    Case(
        name="functional operators and 10 ms sleep in training_step",
        source=fit("mlp", functional_with_sleep(10), steps=150),
        expected=BLOCKED,
        verdicts=("host-bound",),
        cure="step",
        of_peers=True,
    ),
    *(
        Case(name=name, source=source, expected=BLOCKED, verdicts=("host-bound", "mixed"), cure="step")
        for name, source in (
            ("training_step sleeps 6 ms", fit("conv", sleep_in_forward(6), steps=200)),
            ("backward sleeps 8 ms", fit("transformer", sleep_in_backward(8), steps=150)),
        )
    ),
    Case(
        name="the optimizer sleeps 12 ms",
        source=fit("recurrent", sleep_in_optimizer(12), steps=150),
        expected=BLOCKED,
        verdicts=("host-bound",),
        cure="step",
    ),
    *(
        Case(name=name, source=source, expected=BLOCKED, verdicts=("host-bound",))
        for name, source in (
            ("training_step waits for a lock", fit("mlp", held_lock(10), steps=150)),
            ("training_step asks a slow process", fit("transformer", reads_a_pipe(10), steps=120)),
            ("training_step sleeps 20 ms, traced", fit("recurrent", sleep_in_forward(20), steps=80, traced=True)),
        )
    ),
    Case(
        name="training_step stalls 0.3 s every 30 steps",
        source=fit("conv", sleep_in_forward(300, every=30), steps=240),
        expected=(("step-outliers",),),
        verdicts=("host-bound",),
    ),
    Case(
        name="training_step sleeps 12 ms, then not",
        source=fit("transformer", changing_forward(12, 0), steps=200),
        expected=(("phase-change",),),
        allowed=("blocked-in-step", "step-outliers"),  # the slow part, told as what it is to the fast one
    ),
    Case(
        name="training_step does more in each step",
        source=fit("mlp", growing_work(0.012), steps=900),
        expected=(("step-drift",),),
        allowed=("phase-change", "python-overhead"),
        verdicts=("compute-bound",),
    ),
    Case(
        name="garbage collection in each step", source=fit("conv", garbage(50), steps=300), expected=(("gc-pauses",),)
    ),
    Case(
        name="training_step calls a metric that updates twice",
        source=fit("mlp", metric_in_forward(100_000), steps=150, traced=True),
        expected=(("metric-compute-each-step",),),
        verdicts=("compute-bound",),
    ),
    *(
        Case(name=name, source=source, expected=(("optimizer-slow",),), verdicts=("compute-bound",))
        for name, source in (
            ("Adam visits 1,000 parameters one by one", fit("mlp", many_parameters(1000), steps=60)),
            ("Adam visits 24 large parameters one by one", fit("mlp", many_parameters(24, 131_072), steps=60)),
        )
    ),
    Case(
        name="clipping computes the norm 40 times",
        source=fit("recurrent", clipped(40), steps=100),
        expected=(("grad-clip-cost",),),
        verdicts=("compute-bound",),
    ),
    Case(name="every step keeps 0.2 MB", source=fit("transformer", leak(0.2), steps=6500), expected=(("host-leak",),)),
    Case(
        name="the first 6 steps take 1 s",
        source=fit("conv", slow_start(1000, steps=6), steps=150),
        expected=(("slow-first-steps",),),
        allowed=("blocked-in-step",),
    ),
    Case(
        name="a new shape every 20 steps compiles again",
        source=fit("transformer", compiled(dynamic=False), lengths(8, 12, 16, 20, 24, 28, every=20), steps=160),
        expected=(("recompiles", "dynamic-shapes"),),
        allowed=("step-outliers", "slow-first-steps", "dynamic-shapes"),
    ),
    Case(
        name="the compiled network has graph breaks",
        source=fit("conv", compiled(prints=True), steps=150),
        expected=(("graph-breaks",),),
        allowed=("slow-first-steps",),
    ),
    *(
        Case(name=name, source=source, expected=(("python-overhead",),), verdicts=("compute-bound",))
        for name, source in (
            ("training_step computes 10 ms in Python", fit("mlp", burn_in_forward(10), steps=150, traced=True)),
            ("forward computes 15 ms in Python, not traced", fit("mlp", burn_in_network(15), steps=400)),
            ("forward computes 15 ms in Python, for a second, not traced", fit("mlp", burn_in_network(15), steps=70)),
        )
    ),
    Case(
        name="another thread counts in Python",
        source=fit("mlp", busy_thread(), steps=300),
        expected=(("interpreter-lock",),),
        allowed=("blocked-in-step", "step-outliers", "cpu-contention"),
    ),
)
