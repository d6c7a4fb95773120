"""Validation takes a large part of the wall time, while training waits.

## What it means
Lightning validates in the training process and on the same device. The step time does not show it.

## How it is measured
The time of all validation runs inside `fit`, without the sanity check, over the wall time without setup and teardown.
The proposed factor k brings the share to 5 %; it is at most 10 and the number of runs. The gain is (1 - 1/k) of the
time, spread over all training steps; the rest is said. Below 40 % of the wall time it is at most a warning.

## When it is wrong
- If validation steers the training (early stopping, a schedule on a plateau), fewer runs change it.
- Callbacks that work during validation count as validation.
- Short runs validate relatively often: look at a run of the real length.

## What to do
Validate less often, on fewer or larger batches (they need no gradients), or with workers on the validation loader.
`val_check_interval` is an int where the training loader has no length.
"""

import math
from collections import defaultdict

from lightning_gpuprof.model.metrics import Metrics, Recurring
from lightning_gpuprof.model.numbers import capital, often, round_number
from lightning_gpuprof.model.report import OWN_NAME
from lightning_gpuprof.rules.base import Advice, Change, Finding, Value, claims, counted, percent, seconds, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.loop.stalls import Stall, StallRule

_EPOCHS, _FOUR = "trainer.check_val_every_n_epoch", {"validation": (4, 14.0)}


def _every(interval: int | str) -> dict[str, object]:
    return {**_FOUR, "run": {_EPOCHS: None, "trainer.val_check_interval": interval}}


class ValidationStall(StallRule):
    id = "validation-stall"
    title = "Validation takes up much of the run"
    name = "validation"

    least_ratio: float = threshold(0.20, source="heuristic: a fifth of the wall time")
    critical_ratio: float = threshold(0.40, source="heuristic: less than that may be wanted")
    wanted_ratio: float = threshold(0.05, source="heuristic: what validation may cost")
    most_times_rarer: int = threshold(10, source="heuristic: fewer runs than that hide overfitting")

    examples = (
        fires("4 runs take 14 of 34 s", "critical", "every epoch: Trainer(..., check_val_every_n_epoch=4)", **_FOUR),
        fires("one of 4 runs is left", "critical", "Remaining cost: about 3.50 s of validation.", **_FOUR),
        fires(
            "one of 19 runs is left", "critical", "cost: about 1.00 s of validation", epochs=19, validation=(19, 19.0)
        ),
        fires("they are every second epoch", "critical", "check_val_every_n_epoch=8", **_FOUR, run={_EPOCHS: 2}),
        fires("there are 100 an epoch", "critical", "val_check_interval=0.1)", validation=(400, 25.0)),
        fires("they count batches", "critical", "interval=4000, check_val_every_n_epoch=None", **_every(1000)),
        fires("they are every hour", "critical", "Validate once in the run, 4 times less often", **_every("1:00")),
        fires("there are 20", "warning", "Validate every 10 epochs instead", epochs=20, validation=(20, 13.0)),
        fires(
            "they take 13 s of 33 s",
            "warning",
            "Validation ran 4 times, 3.25 s each: 13.0 s in total, 39 % of",
            validation=(4, 13.0),
        ),
        fires("a single run takes as long", "critical", "limit_val_batches", epochs=1, validation=(1, 14.0)),
        fires("no step is steady", "info", "Validation ran", steps=15, steady=0, validation=(4, 0.4)),
        quiet("validation takes less than a fifth", validation=(4, 4.9)),
        quiet("there is none", validation=(0, 0.0)),
        looks_alike("checkpoints take as long", checkpoint=(4, 14.0)),
        not_evaluated("there are nine steps", "9 steps were run, 10 are needed", steps=9, validation=(4, 0.7)),
    )

    def part(self, metrics: Metrics) -> Recurring:
        """The validation runs of the whole fit."""
        return metrics.validation

    def judge(self, metrics: Metrics, stall: Stall) -> Finding | None:
        validation = stall.part
        saved = stall.cost.part(1 - 1 / stall.rarer)
        if not saved.is_worth():
            return None
        hook, hook_s = _largest_hook(metrics, validation.total_s)
        advice, change = _less(metrics, stall, hook)
        left_s = validation.total_s / (validation.count if stall.remains_once and validation.count > 1 else stall.rarer)
        capped = stall.cost.severity == "critical" and stall.ratio < self.critical_ratio
        return self.finding(
            severity="warning" if capped else stall.cost.severity,
            subject=validation.subject or "validation loop",
            summary=stall.words(f"Validation ran {often(validation.count)}")
            + (f" {hook} takes {seconds(hook_s)} of it." if hook else ""),
            advice=advice,
            change=change,
            leaves="" if change is None else f"about {seconds(left_s)} of validation",
            evidence=(
                self.evidence("least_ratio", stall.ratio, "validation, share of the training time"),
                self.fact("validation", validation.total_s, "s"),
                self.fact("wall time without setup and teardown", stall.total_s, "s"),
                self.fact("validation runs", validation.count),
            ),
            cost=saved,
            confidence=0.9,
            explains=claims.VALIDATION,
        )


_MOST_RATIO = 0.5
"""Of validation, from which one hook is named. Heuristic."""
_AT_THE_ENDS = ("_epoch_start", "_epoch_end", "_validation_start", "_validation_end")
"""Hooks that take as long for few batches."""


def _largest_hook(metrics: Metrics, total_s: float) -> tuple[str, float]:
    """The user's hook that takes most of validation, with all regions in it, and its seconds; none: an empty name."""
    spent_s: dict[str, float] = defaultdict(float)
    for row in metrics.ledger:
        if row.part == "validation" and row.phase == "callbacks" and row.hook and row.name != OWN_NAME:
            spent_s[f"{row.name}.{row.hook.partition(' > ')[0]}"] += row.total_s
    hook, hook_s = max(spent_s.items(), key=lambda item: item[1], default=("", 0.0))
    return (hook, hook_s) if hook_s >= _MOST_RATIO * total_s > 0 else ("", 0.0)


def _less(metrics: Metrics, stall: Stall, hook: str) -> Advice:
    """How to validate less, by settings that Lightning takes for these loaders.

    Args:
        metrics: The run.
        stall: Its validation.
        hook: That takes most of it; empty: none does.
    """
    at_the_ends = hook.endswith(_AT_THE_ENDS)
    words, fewer = (f"make {hook} cheaper.", None) if at_the_ends else _fewer_batches(metrics, stall.rarer)
    if metrics.validation.count > 1:
        text, change = _rarer(metrics, stall.rarer, metrics.validation.count / max(1, len(metrics.epoch_starts)))
        if stall.remains_once:
            text = text.replace("Validate ", "Validate once in the run, ", 1)
        then = percent(stall.ratio / (stall.ratio + stall.rarer * (1 - stall.ratio)))
        then = (
            "this keeps one validation" if stall.remains_once else f"validation then takes {then} of the training time"
        )
        why = f" Why {stall.rarer} times less often: {then}."
        return text + why + (f" Or {words}" if words else ""), change
    if not words:
        return "Make validation itself cheaper: a smaller validation set, or workers in its DataLoader.", None
    return capital(words), fewer


def _rarer(metrics: Metrics, rarer: int, per_epoch: float) -> Advice:
    current, interval = (metrics.condition(f"trainer.{n}") for n in ("check_val_every_n_epoch", "val_check_interval"))
    over_epochs = current is None and interval is not None  # None itself is not recorded: batches count over all epochs
    if isinstance(interval, int) and (over_epochs or per_epoch >= rarer):  # an epoch has to have that many batches
        also: dict[str, Value] = {"check_val_every_n_epoch": None} if over_epochs else {}
        change = _trainer({"val_check_interval": interval}, val_check_interval=interval * rarer, **also)
        return f"Validate every {interval * rarer:,} batches instead of every {interval:,}: {change.added[0]}.", change
    before: dict[str, Value] = {} if interval is None else {"val_check_interval": interval}
    if interval is None:
        interval = 1 / max(1.0, per_epoch)
    if not isinstance(interval, (int, float)):  # a time
        return f"Validate {rarer} times less often: Trainer(..., val_check_interval=...).", None
    if isinstance(interval, float) and interval * rarer < 1:
        change = _trainer({"val_check_interval": interval}, val_check_interval=float(f"{interval * rarer:.3g}"))
        return f"Validate {rarer} times less often: {change.added[0]}.", change
    every = metrics.positive("trainer.check_val_every_n_epoch") or 1
    then = math.ceil(rarer / per_epoch) if per_epoch > 1 else every * rarer
    arguments: dict[str, Value] = {"val_check_interval": 1.0} if per_epoch > 1 else {}
    if then > every:
        arguments["check_val_every_n_epoch"] = then
    change = _trainer(before if per_epoch > 1 else {"check_val_every_n_epoch": every}, **arguments)
    now = f"{per_epoch:.3g} times per epoch" if per_epoch > 1 else _epochs(every)
    return f"Validate {_epochs(then)} instead of {now}: {change.added[0]}.", change


def _trainer(before: dict[str, Value], **arguments: Value) -> Change:
    return Change(call="Trainer", arguments=arguments, before=before)


def _epochs(every: int) -> str:
    return "every epoch" if every == 1 else f"every {every} epochs"


def _fewer_batches(metrics: Metrics, rarer: int) -> Advice:
    """As an int: a share would be one of the whole loader. Empty: there are too few of them."""
    batches, several = metrics.number("trainer.num_val_batches"), metrics.positive("val_loader.count") or 1
    if batches is None:
        return f"validate on 1/{rarer} of the batches: set limit_val_batches in the Trainer to an int.", None
    then = round_number(max(1, int(batches) // (rarer * several)), down=True)
    if then * several >= batches:
        return "", None
    what = f"{then:,} of {int(batches):,} batches" if several == 1 else f"{counted(then, 'batch')} of each loader"
    change = _trainer({}, limit_val_batches=then)
    return f"validate on {what}: {change.added[0]}.", change
