"""Cases: real fits on two ranks of the CPU."""

from truths.case import Case
from truths.faults_of_loops import many_values, slow_callback
from truths.faults_of_steps import optimized_by_hand, sleep_by_chance, sleep_in_forward
from truths.ranks import Ranks

_SEEDS = (11, 12)
_EXCHANGED = (many_values(8, sync_dist=True),)
_AT_THE_END = (many_values(2, sync_dist=True, on_step=False, on_epoch=True),)

RANKS: tuple[Case, ...] = (
    Case(
        name="one of two ranks sleeps 12 ms in training_step",
        source=Ranks(kind="mlp", faults={1: (sleep_in_forward(12),)}),
        expected=(("straggler-rank",),),
        verdicts=("comm-bound",),
        allowed=("blocked-in-step",),
    ),
    Case(
        name="a callback of rank 0 takes 12 ms in each step",
        source=Ranks(kind="mlp", faults={0: (slow_callback(12),)}),
        group="pair",
        expected=(("callback-slow",), ("straggler-rank",)),  # the report is that of rank 0, whose step is as long
        verdicts=("comm-bound", "loop-bound"),
    ),
    Case(
        name="two ranks sleep for times that are drawn",
        source=Ranks(
            kind="conv",
            faults={rank: (sleep_by_chance(16, seed=seed),) for rank, seed in enumerate(_SEEDS)},
            steps=300,
        ),
        group="pair",
        expected=(("blocked-in-step",), ("load-imbalance",)),
        allowed=("step-outliers",),
    ),
    Case(
        name="two ranks exchange 8 logged values in each step",
        source=Ranks(kind="mlp", faults=dict.fromkeys(range(2), _EXCHANGED)),
        expected=(("log-sync-dist",),),
        verdicts=("loop-bound",),
        allowed=("step-outliers",),
    ),
    Case(
        name="two ranks exchange two logged values once per epoch",
        source=Ranks(kind="mlp", faults=dict.fromkeys(range(2), _AT_THE_END)),
        group="decoy",
        must_judge=("log-sync-dist",),
    ),
    Case(
        name="two ranks reduce gradients in each batch, and an optimizer steps in every fourth",
        source=Ranks(kind="mlp", faults=dict.fromkeys(range(2), (optimized_by_hand(4),))),
        expected=(("accumulate-nosync",),),
    ),
    Case(
        name="two ranks reduce gradients in every fourth batch, in which an optimizer steps",
        source=Ranks(kind="mlp", faults=dict.fromkeys(range(2), (optimized_by_hand(4, blocks=True),))),
        group="decoy",
        must_judge=("accumulate-nosync",),
    ),
    Case(
        name="two ranks that do the same",
        source=Ranks(kind="mlp"),
        group="healthy",
    ),
)
