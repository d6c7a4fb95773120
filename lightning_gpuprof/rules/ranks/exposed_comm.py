"""Communication is not hidden behind computation and adds to the step.

## What it means
DDP reduces gradients while the backward still computes. Whatever is not done when the backward ends adds to the step,
and so does every collective that something waits for.

## How it is measured
In trace windows, the exposed time is the union of NCCL's or RCCL's kernels minus all other kernels, per step, as a
share of untraced steps. The window with the least of it gives the lower bound.

A communication kernel also waits for ranks that come later. Of collectives of one size that are seen at least three
times, the fastest stands for the transfer, and the rest of their time counts as waiting. So does time that is longer
than 0.1 ms and slower than 1 GB/s (4 GB/s within a node), which is slower than any link.

The gain is the exposed time. Its lower bound is the transfer.

## When it is wrong
- A rank that is never last waits in every collective: from its trace alone, transfer is an upper bound. `gpuprof trace
  RANK0 RANK1 …` of all ranks separates transfer from waiting and names the late rank.
- If the host is late, hiding communication may gain less.
- Reductions by optimizers and of sharded parameters (FSDP, ZeRO) cannot be hidden behind a backward entirely.

## What to do
If it is transfer, send fewer bytes (`ddp_comm_hook=default_hooks.bf16_compress_hook`), reduce less often
(`accumulate_grad_batches`), or give it more to hide behind (a larger batch per rank). If it is waiting, find the late
rank.
"""

from msgspec.structs import replace

from lightning_gpuprof.model.collectives import CollectiveWindow
from lightning_gpuprof.model.numbers import capital, counted, listed, millis, percent
from lightning_gpuprof.model.trace.communication import CollectiveTimes
from lightning_gpuprof.model.trace.ranks import TRACE_ALL_RANKS
from lightning_gpuprof.rules.base import Advice, BaseRule, Change, Finding, Metrics, claims, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet
from lightning_gpuprof.rules.ranks.collective_times import collective_run, sized

_MOSTLY_TRANSFER_RATIO = 0.5
_WIDE = ("float", "double")
_BF16 = Change(add=("DDPStrategy(..., ddp_comm_hook=default_hooks.bf16_compress_hook)",))
_MANY_IN_A_STEP = 100
"""All-reduces of one size, or of unknown sizes. Heuristic: DDP makes one for each 25 MB."""


class ExposedComm(BaseRule):
    id = "exposed-comm"
    title = "Exposed communication stalls the step"
    needs = "ranks"

    least_ratio: float = threshold(0.10, source="torch-tb-profiler and MindInsight: communication above 10 %")

    examples = (
        fires(
            "two all-reduces of 25 MiB take 6 ms each",
            "critical",
            "12.0 ms of each 50.0 ms step (24 %) ... bf16_compress_hook ... accumulate_grad_batches=4",
            saves_ms=12.0,
            collectives=({"ms": 6.0, "min_ms": 5.5},),
            run={"trainer.comm_hook": None, "trainer.accumulate_grad_batches": 1},
        ),
        fires(
            "gradients are sent as bf16",
            "critical",
            "batch_size above 32 per rank",
            lacks="bf16_compress_hook",
            collectives=({"ms": 6.0, "dtype": "bfloat16"},),
            run={"trainer.comm_hook": "bf16_compress"},
        ),
        fires("a rank is late", "critical", "Find the late", lacks="bf16", collectives=({"ms": 6.0, "min_ms": 0.5},)),
        fires(
            "small ones",
            "critical",
            "20.5 KiB ... late rank",
            collectives=({"ms": 6, "mb": 0.02, "kind": "all_to_all"},),
        ),
        fires("no size is known", "warning", "One rank's trace", collectives=({"ms": 20.0, "count": 2, "mb": None},)),
        fires(
            "a step has 400",
            "critical",
            "Bucket the 400 all-reduces",
            collectives=({"ms": 0.1, "mb": None, "count": 2000},),
        ),
        fires("10.04 % of the step", "warning", "10 %", collectives=({"ms": 2.51},)),
        quiet("9.96 % of the step", collectives=({"ms": 2.49},)),
        quiet("there is one rank", collectives=({"ms": 12.0},), run={"trainer.world_size": 1}),
        looks_alike("computation covers it", collectives=({"ms": 12.0, "exposed_ms": 0.5},)),
        not_evaluated("nothing was traced", "no trace window", collectives=({"ms": 6.0},), metrics={"windows": ()}),
        not_applicable("ranks are on CPUs", "gloo", run={"trainer.world_size": 2}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        run = collective_run(metrics, with_earlier_work=True)
        if run is None:
            return None
        exposed = metrics.cost(run.exposed.ms, run.exposed.lower_ms)
        if not exposed.is_worth(self.least_ratio):
            return None
        window = run.largest
        covered_ratio = 1.0 - min(1.0, window.exposed_ms / window.communication_ms) if window.communication_ms else 0.0
        mostly_transfer = window.transfer_ratio >= _MOSTLY_TRANSFER_RATIO
        longest = sorted(window.communication.sizes, key=lambda one: -one.exposed_us)[:3]
        largest = longest[0] if longest else None
        named = [f"{sized(one)} ({millis(one.exposed_us / 1e3)} in {counted(one.count, 'call')})" for one in longest]
        of_it = f" Longest: {listed(named)}." if named else ""
        split = (
            "One rank's trace cannot show how much of it is waiting for other ranks."
            if window.transfer_ratio >= 1.0
            else f"At most {percent(window.transfer_ratio)} is transfer, the rest waiting for other ranks."
        )
        late = (
            f"Find the late rank: {TRACE_ALL_RANKS.replace('RANKS', str(run.ranks))}. While this rank waits, faster "
            "links or smaller gradients would not help."
        )
        transfer = _transfer_advice(metrics, run.ranks, window, largest)
        return self.finding(
            title=self.title if mostly_transfer else "Collectives wait for a late rank",
            severity=exposed.severity,
            subject=sized(largest) if largest is not None else "collectives",
            summary=f"Communication that does not overlap with computation takes {exposed}. {split}{of_it}",
            advice=transfer if mostly_transfer else (late, None),
            evidence=(
                self.evidence("least_ratio", min(1.0, exposed.ratio), "exposed communication, share of the step"),
                self.fact("covered by computation", covered_ratio, "ratio"),
                self.fact("at most transfer, the rest is waiting", window.transfer_ratio, "ratio"),
                self.fact("ranks", run.ranks),
                self.fact("step time", run.period_ms, "ms"),
            ),
            cost=replace(exposed, lower_ms=exposed.lower_ms * window.transfer_ratio),
            confidence=0.7 if mostly_transfer else 0.6,
            explains=claims.COMMUNICATION,
        )


def _transfer_advice(metrics: Metrics, ranks: int, window: CollectiveWindow, largest: CollectiveTimes | None) -> Advice:
    strategy = str(metrics.condition("trainer.strategy") or "")
    batch = metrics.condition("loader.batch_size")
    accumulate = metrics.condition("trainer.accumulate_grad_batches")
    ways: list[str] = []
    change: Change | None = None
    if largest is not None and largest.kind == "all_reduce" and window.per_step(largest) > _MANY_IN_A_STEP:
        ways.append(
            f"bucket the {window.per_step(largest):.0f} all-reduces of a step ({millis(largest.mean_us / 1e3)} each), "
            "as DDP does"
        )
    wide = largest is not None and largest.dtype in _WIDE and largest.kind == "all_reduce"
    if strategy == "DDPStrategy" and wide and metrics.condition("trainer.comm_hook") in (None, "none", ""):
        change = _BF16
        ways.append(f"send gradients as bf16, half the bytes: {change.added[0]}")
    if accumulate == 1:
        ways.append("reduce them only every fourth batch: Trainer(..., accumulate_grad_batches=4)")
    if isinstance(batch, int):
        ways.append(f"raise batch_size above {batch} per rank: more computation for the same bytes")
    if not ways:
        ways.append("send fewer bytes, or use a larger batch per rank: more computation for the same bytes")
    return (
        f"{capital('. Or '.join(ways))}. To separate transfer from waiting, "
        f"{TRACE_ALL_RANKS.replace('RANKS', str(ranks))}."
    ), change
