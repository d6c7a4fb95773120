"""The worker processes are started again at every epoch, and the first batch waits for them.

## What it means
Without `persistent_workers=True`, a DataLoader ends its workers with each epoch. The next epoch starts processes and
hands them the dataset, and each makes its first batch while the model waits.

## How it is measured
For every epoch but the first, E is the time of `iter(dataloader)` plus the fetch of the first batch, and W the ordinary
wait of a step. The rule fires if the median of E - W passes 5 % of the epoch (gap and steps), or 3 % if E is also more
than ten times W. The gain is the sum of E - W over these epochs, spread over all steps.

Workers that stay alive make a first batch as well, so the lower bound of the cost is stricter and must also pass the
threshold. It counts `iter(dataloader)` in full, and of the sum only what exceeds n * T, the longest that one of n
workers can take for a batch in a steady run.

## When it is wrong
- A dataset with slow batches has a long first fetch, too; the lower bound keeps such runs out.
- A first batch that is slow for another reason, such as a file that the worker opens, stays slow with persistent
  workers if the dataset opens it per epoch.
- Fewer than two epochs after the first: not evaluated.

## What to do
Set `persistent_workers=True`, and `reload_dataloaders_every_n_epochs=0`: a new loader starts new workers. Persistent
workers keep their copy of the dataset, so a change to it in the main process no longer reaches them. A dataset that
holds large Python objects is slow to hand over: keep arrays instead.
"""

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.numbers import counted, percent, seconds
from lightning_gpuprof.rules.base import (
    BaseRule,
    Change,
    Metrics,
    MissingSignal,
    NotApplicable,
    claims,
    measured,
    severity,
    threshold,
)
from lightning_gpuprof.rules.examples import fires, looks_alike, not_applicable, not_evaluated, quiet

_STARTS = {"persistent_workers": False, "iterator_s": 0.3, "first_wait_s": 0.9}
_ANEW = {**_STARTS, "times_ms": {"forward": 4.0, "backward": 5.0}}
_SLOW = {**_STARTS, "iterator_s": 0.01, "first_wait_s": 0.85}
_RELOADED = {**_ANEW, "persistent_workers": True, "run": {"trainer.reload_dataloaders_every_n_epochs": 1}}


class WorkerStartup(BaseRule):
    id = "worker-startup"
    title = "Workers restart at every epoch"
    needs = "workers"

    least_epoch_ratio: float = threshold(0.05, source="heuristic: 5 % of the epoch")
    least_epoch_ratio_if_many: float = threshold(0.03, source="the least worthwhile gain")
    many_waits: float = threshold(10.0, source="heuristic: ten ordinary waits")
    least_epochs: int = threshold(2, source="heuristic: one epoch start can be an accident")

    examples = (
        fires("three wait", "critical", "takes 1.20 s ... (..., persistent_workers=True", saves_ms=9.0, **_ANEW),
        fires("loaders are re-created", "critical", "0). Remaining cost:", lacks="persistent_workers", **_RELOADED),
        quiet("the workers stay alive", **{**_ANEW, "persistent_workers": True}),
        quiet("they start quickly", persistent_workers=False),
        quiet("there are none", num_workers=0, persistent_workers=False, first_wait_s=2.0),
        looks_alike("each batch is slow to make", times_ms={"data_wait": 400.0}, **_SLOW),
        not_applicable(
            "there are two epochs", "1 epoch starts after the first, 2 are needed", **{**_ANEW, "epochs": 2}
        ),
        not_evaluated("the loader is not torch's", "not a torch DataLoader", no_loader=True),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        facts = metrics.loader
        if facts is None or facts.num_workers is None or facts.persistent_workers is None:
            raise MissingSignal("the training loader is not a torch DataLoader, its workers are not known")
        reloads = metrics.positive("trainer.reload_dataloaders_every_n_epochs") is not None
        if facts.num_workers == 0 or (facts.persistent_workers and not reloads):
            return None
        count = max(0, len(metrics.epoch_starts) - 1)
        if count < self.least_epochs:
            raise NotApplicable(f"{count} epoch starts after the first, {self.least_epochs} are needed")
        run_s, found = metrics.run_s, measured(metrics.worker_starts)
        if found is None:
            return None
        first_s, cost_ratio = found.cost_s + found.wait_s, found.cost_s / found.epoch_s
        many, name = first_s > self.many_waits * found.wait_s, "worker start-up share of an epoch"
        least_ratio = self.least_epoch_ratio_if_many if many else self.least_epoch_ratio
        certain = found.lower_s / found.cost_s if found.cost_s > 0 else 0.0
        cost = metrics.run_cost(found.sum_s, found.sum_s * certain)
        if found.lower_s < least_ratio * found.epoch_s or not cost.is_worth():
            return None
        workers = facts.num_workers
        change = _alive(facts.persistent_workers, reloads)
        return self.finding(
            severity=severity(found.lower_s * count / run_s, metrics.steps.steady_count),
            subject=facts.dataset or "DataLoader",
            summary=f"Restarting {counted(workers, 'worker')} takes {seconds(found.cost_s)} of each "
            f"{seconds(found.epoch_s)} epoch ({percent(cost_ratio)}). In total, {counted(count, 'epoch start')} "
            f"waited {seconds(found.sum_s)}.",
            advice=f"Keep the workers alive between epochs: {', '.join(change.added)}.",
            change=change,
            evidence=(
                self.evidence("least_epoch_ratio_if_many" if many else "least_epoch_ratio", cost_ratio, name, "ratio"),
                self.fact("until the first batch of an epoch", first_s, "s"),
                self.fact("of which iter(dataloader)", found.iterator_s, "s"),
                self.fact("ordinary wait for a batch", found.wait_s * 1e3, "ms"),
                Evidence(name="epoch starts after the first", value=count, limit=self.least_epochs),
            ),
            cost=cost,
            leaves="the first epoch, in which the workers have to start",
            confidence=0.9,
            explains=claims.EPOCH_START,
        )


def _alive(persistent: bool, reloads: bool) -> Change:
    trainer = ("Trainer(..., reload_dataloaders_every_n_epochs=0)",) if reloads else ()
    if persistent:
        return Change(add=trainer)
    return Change(
        call="DataLoader", arguments={"persistent_workers": True}, before={"persistent_workers": False}, add=trainer
    )
