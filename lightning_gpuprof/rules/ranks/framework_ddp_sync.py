"""Before each batch, Lightning asks all ranks whether one has to stop, and waits for the answer.

## What it means
Since version 2.5.2, Lightning broadcasts a tensor from rank 0 at the start of every batch and reads it on the host, so
that all ranks stop together after a SIGTERM. On a GPU, the host waits until the device has finished all its work. The
device then has nothing to do until the batch is fetched and the first kernel is launched.

## How it is measured
On a GPU, a trace window shows how long the device idles after waits outside of every hook and phase of the model, as
for `sync-points`. No more than the time that the host was blocked counts, scaled to untraced steps.

On a CPU, the cost is the phase `sync`. It includes the wait for ranks that come later, which would wait elsewhere
without the check. So it is information without a gain.

## When it is wrong
- Your own code looks the same if it reads a value between two steps, outside of every hook.
- Versions of Lightning without the check have nothing to find.
- Another wait in each step (`sync-points`, `progress-bar-sync`) empties the queue as well. Removing this one alone then
  gains little.

## What to do
Give each step more work: the check costs the same for a large batch, and `accumulate_grad_batches` makes it once per
batch. No setting of the Trainer turns it off.
"""

from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, claims, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.launches.step_rule import confidence, explained_step, remark, step_evidence
from lightning_gpuprof.rules.transfers.wait_rule import costly_waits, idle_words, times

SUBJECT = "Lightning's check of all ranks"

_RANKS = {"trainer.world_size": 4, "version.lightning": "2.6.6", "trainer.accumulate_grad_batches": 4}
_ON_CPU = {**_RANKS, "device.type": "cpu"}
_CHECKED = {"rank_check": True, "kernels": 60, "fetch_us": 1500.0}


class FrameworkDdpSync(BaseRule):
    id = "framework-ddp-sync"
    title = "Lightning's stop check stalls the step"
    needs = "ranks"

    least_ratio: float = threshold(0.03, source="heuristic: a cost of 3 %")
    least_per_step: float = threshold(0.5, source="heuristic, as for progress-bar-sync")

    examples = (
        fires(
            "the GPU idles after each check while the batch is fetched",
            "warning",
            "Lightning 2.6.6 asks all ranks once per step ... batch_size=64 ... in place of accumulate_grad_batches=4",
            saves_ms=1.2,  # of 1.5 ms in four of five steps: before the first check there is no kernel
            step=_CHECKED,
            run=_RANKS,
        ),
        fires("a CPU waits in it", "info", "including the wait for late ranks", times_ms={"sync": 20.0}, run=_ON_CPU),
        quiet("the check is short", times_ms={"sync": 0.5}, run=_ON_CPU),
        quiet("steps are without it", step={}, run=_RANKS),
        quiet("long kernels follow at once", step={"rank_check": True, "fetch_us": 0.0}, run=_RANKS),
        quiet("there is one rank", step=_CHECKED, run={"trainer.world_size": 1}),
        looks_alike(
            "the model reads a value",
            step={"kernels": 60, "reads": {"training_step": 0.0}, "other_us": 2000.0},
            run=_RANKS,
        ),
        not_evaluated("nothing was traced", "no trace window was recorded", run={**_RANKS, "device.type": "cuda"}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        if not metrics.is_distributed:
            return None
        return self._on_cpu(metrics) if metrics.is_cpu_only else self._on_device(metrics)

    def _on_device(self, metrics: Metrics) -> Finding | None:
        step, change = explained_step(metrics), _larger_batch(metrics)
        found = costly_waits(step, "rank check", least_per_step=self.least_per_step, least_ratio=self.least_ratio)
        if found is None:
            return None
        return self.finding(
            subject=SUBJECT,
            summary=(
                f"{_lightning(metrics)} asks all ranks {times(found.most_per_step)} per step whether to stop, and "
                f"reads the answer on the host: {idle_words(found)}.{remark(step)}"
            ),
            advice=_advice(metrics, change),
            change=change,
            evidence=(
                self.evidence("least_ratio", found.ratio, "idle after the check, share of the step"),
                self.fact("host blocked per traced step", found.blocked_ms, "ms"),
                *step_evidence(step),
            ),
            cost=metrics.cost(found.cost_ms, found.lower_ms),
            confidence=0.8 * confidence(step),
            explains=claims.ALL_RANKS_CHECK,
        )

    def _on_cpu(self, metrics: Metrics) -> Finding | None:
        check = metrics.share("sync")
        if check is None:
            return None  # a loop without the check has no such phase
        cost = metrics.cost_of(check)
        if not cost.is_worth(self.least_ratio):
            return None
        change = _larger_batch(metrics)
        return self.finding(
            subject=SUBJECT,
            summary=(
                f"{_lightning(metrics)} asks all ranks before each batch whether to stop, which takes "
                f"{cost}, including the wait for late ranks."
            ),
            advice=_advice(metrics, change),
            change=change,
            evidence=(
                self.evidence("least_ratio", cost.ratio, "check of all ranks, share of the step"),
                self.fact("step time", cost.step_ms, "ms"),
            ),
            confidence=0.5,
            explains=claims.RANK_SYNC,
        )


def _lightning(metrics: Metrics) -> str:
    version = metrics.condition("version.lightning")
    return f"Lightning {version}" if version else "Lightning"


def _larger_batch(metrics: Metrics) -> Change | None:
    size = metrics.batch_size
    return setting("DataLoader", batch_size=(size, 2 * size)) if size else None


def _advice(metrics: Metrics, change: Change | None) -> str:
    larger = change.added[0] if change is not None else "a larger batch_size"
    batches = metrics.positive("trainer.accumulate_grad_batches") or 1
    instead = f" in place of accumulate_grad_batches={batches}" if batches > 1 else ""
    return f"Give each step more work: {larger}{instead} halves the number of checks. No Trainer setting turns it off."
