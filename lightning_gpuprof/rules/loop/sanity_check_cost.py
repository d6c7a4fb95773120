"""The validation batches that Lightning runs before training take long.

## What it means
Before training, Lightning runs `num_sanity_val_steps` validation batches (2 by default), so that an error in validation
shows at once. With slow data, or `-1` (all batches), that delays each start.

## How it is measured
The wall time of the check: from 30 s on, or from 1 s on if that is 2 % of the run without setup and teardown. It
happens once, so it is information only.

## When it is wrong
The first validation batches also start the validation workers, which the first real validation would do instead.

## What to do
`Trainer(num_sanity_val_steps=0)` once validation is known to work.
"""

from lightning_gpuprof.model.numbers import percent, possible, seconds
from lightning_gpuprof.rules.base import BaseRule, Evidence, Finding, Metrics, MissingSignal, claims, setting, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet


class SanityCheckCost(BaseRule):
    id = "sanity-check-cost"
    title = "The sanity check is slow"

    least_ratio: float = threshold(0.02, source="heuristic: of the run")
    least_s: float = threshold(1.0, source="heuristic: shorter ones do not matter")
    always_s: float = threshold(30.0, source="heuristic")

    examples = (
        fires(
            "50 batches take 5 s of 26 s",
            "info",
            "50 validation batches before training take 5.00 s, 19 % ... Trainer(..., num_sanity_val_steps=0)",
            saves_ms=12.5,
            wall_s={"sanity": 5.0},
            run={"trainer.num_sanity_val_steps": 50},
        ),
        fires("the batches take 31 s of 2,000 s", "info", "31.0 s", wall_s={"sanity": 31.0}, steps=40_000),
        quiet("the batches take 20 s of it", wall_s={"sanity": 20.0}, steps=40_000),
        quiet("the batches take 0.9 s of 21 s", wall_s={"sanity": 0.9}),
        looks_alike("validation alone was run", wall_s={"sanity": 5.0}, run={"stage": "test"}),
        not_evaluated("its time is not known", "sanity", wall_s={"sanity": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        if metrics.condition("stage") not in (None, "fit"):
            return None
        total_s = metrics.run_s
        sanity_s = metrics.wall.parts.get("sanity")
        if sanity_s is None or not possible(sanity_s):
            raise MissingSignal("the time of the sanity check was not measured")
        ratio = min(1.0, sanity_s / total_s)
        if not (sanity_s >= self.always_s or (sanity_s >= self.least_s and ratio >= self.least_ratio)):
            return None
        batches = metrics.condition("trainer.num_sanity_val_steps")
        some = f"{batches:,} validation batches" if isinstance(batches, int) and batches > 0 else "Validation batches"
        change = setting("Trainer", num_sanity_val_steps=(batches, 0))
        return self.finding(
            severity="info",
            subject=f"num_sanity_val_steps={batches}" if batches is not None else "sanity check",
            summary=f"{some} before training take {seconds(sanity_s)}, {percent(ratio)} of the run.",
            advice=f"Once validation is known to work, skip the check: {change.added[0]}.",
            change=change,
            evidence=(
                self.evidence("least_ratio", ratio, "sanity check, share of the run"),
                Evidence(name="sanity check", value=sanity_s, unit="s", limit=self.least_s),
            ),
            cost=metrics.run_cost(sanity_s),
            confidence=0.9,
            explains=claims.SANITY_CHECK,
        )
