"""The memory of the main process, or of the workers, keeps growing.

## What it means
Every step keeps something: losses with their graphs, outputs of all batches, a cache without a limit, lists of metrics.
When the memory is full, the run is killed, often after hours and without an error message.

## How it is measured
Resident memory is read once a second after warm-up, more often at first. File pages and shared memory do not count.
Pages that workers share are divided among them, so that copy-on-write is no growth. Trace windows, and what they leave
behind, are left out.

Three tests must agree that memory grows: the Mann-Kendall test finds a trend, the trend goes on in the later half
(Theil-Sen slopes), and it is even, so that four flat levels explain it hardly better than a straight line.

The severity depends on how soon the rest is used up, of the machine or of the control group's limit. There is no gain,
because the growth costs no time.

## When it is wrong
- A dataset that is cached on purpose grows until all of it has been read. In a run of fewer than three epochs the
  finding is information only, or a warning if memory runs out within an hour.
- A run that has been observed for a sixtieth of the time until then, or less, predicts nothing: information only.

## What to do
The list, dictionary or set that gains items in every step is named, if it is an attribute of a module, a callback or
the dataset.

Keep numbers, not tensors with graphs (`loss.detach()`). Clear what is collected per epoch, and limit caches. In a
Dataset, keep samples in arrays instead of lists of objects. `tracemalloc` shows the lines that allocate Python objects.
"""

from lightning_gpuprof.model.host import MemoryGrowth
from lightning_gpuprof.model.numbers import decimal_size, possible
from lightning_gpuprof.rules.base import BaseRule, Finding, Metrics, MissingSignal, Severity, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.memory.memory_rule import kept_items

_HOUR_S = 3600.0
_PROCESS, _WORKERS = "process_private", "workers_pss"
_OWNERS = {_PROCESS: "main process", _WORKERS: "DataLoader workers"}
_EPOCHS = 3
_KEPT = {"kept.in": "Net.losses", "kept.items": 400, "kept.kind": "tensors with their graphs"}


class HostLeak(BaseRule):
    id = "host-leak"
    title = "Host memory keeps growing"

    least_ratio: float = threshold(0.05, source="SageMaker Debugger: memory increase of 5 %")
    least_mib: float = threshold(64.0, source="heuristic: above what allocators take in a run without a leak")
    most_chance: float = threshold(0.001, source="heuristic, stricter than the usual 0.01")
    least_late_ratio: float = threshold(0.5, source="heuristic: growth that comes to its end is none")
    least_levels_ratio: float = threshold(
        0.7,
        source="heuristic: squares that four flat levels leave, over those of a straight line; at most 0.69 in 22 "
        "recorded runs that grow in two jumps, more in 96 % of simulated leaks with dips",
    )
    least_samples: int = threshold(20, source="the trend's least number of samples")
    critical_h: float = threshold(1.0, source="heuristic")
    most_times_seen: float = threshold(60.0, source="heuristic: how many times the run's own length may be foretold")
    warning_h: float = threshold(24.0, source="heuristic")

    examples = (
        fires("the process keeps 2.7 MB per step", "critical", "grows by 2.68 MB per step", growing={}),
        fires("a list keeps each step's loss", "critical", "Net.losses gained", growing={}, run=_KEPT),
        fires("the workers do", "critical", "Digits", growing={"of": _WORKERS}),
        quiet("the process grows by 60 MiB", growing={"mib": 60.0}),
        looks_alike("the process grows once, for optimizer states", growing={"even": 0.4}),
        looks_alike("the growth comes to its end", growing={"late": 0.4}),
        not_evaluated("the process was read 19 times", "less than 20 times", growing={"samples": 19}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        rows = [row for row in metrics.host.growth if row.of in _OWNERS and row.samples >= self.least_samples]
        if not any(row.of == _PROCESS for row in rows):
            few = f"less than {self.least_samples} times after warm-up"
            raise MissingSignal(f"the memory of the process was read {few}")
        growing = [row for row in rows if self._grows(row)]
        if not growing:
            return None
        worst = max(growing, key=lambda row: row.latest_bytes_per_s)
        owner, slope, step = _OWNERS[worst.of], worst.latest_bytes_per_s, worst.slope_bytes_per_step
        left = metrics.host.memory_left_bytes
        hours = None if left is None else left / slope / _HOUR_S
        per_step = step is not None and possible(step)
        rate = f"{decimal_size(step or 0.0)} per step" if per_step else f"{decimal_size(slope)} per second"
        full = (
            ""
            if left is None or hours is None
            else f" At this rate, the {decimal_size(left)} left last {_for_how_long(hours)}."
        )
        return self.finding(
            severity=self._severity(metrics, worst, hours),
            subject=owner,
            summary=f"Memory of the {owner} grows by {rate}, from {decimal_size(worst.first_bytes)} to "
            f"{decimal_size(worst.last_bytes)} so far.{full}",
            advice=_advice(metrics, worst),
            evidence=(
                self.evidence("least_ratio", worst.last_bytes / worst.first_bytes - 1, "growth"),
                self.fact("slope", worst.slope_bytes_per_s / 1e6, "MB/s"),
                self.fact("slope of the later half", slope / 1e6, "MB/s"),
                self.evidence("most_chance", worst.p_value, "chance of this without growth"),
                self.evidence("least_samples", worst.samples, "samples"),
            ),
            confidence=0.8 if len(metrics.epoch_starts) >= _EPOCHS else 0.6,
        )

    def _grows(self, row: MemoryGrowth) -> bool:
        late, grown = row.late_slope_bytes_per_s, row.last_bytes - row.first_bytes
        numbers = (row.first_bytes, row.last_bytes, row.p_value, row.slope_bytes_per_s, late)
        if late is None or row.first_bytes <= 0 or not all(x is not None and possible(x) for x in numbers):
            return False
        return (
            row.p_value < self.most_chance
            and grown >= max(self.least_ratio * row.first_bytes, self.least_mib * 2**20)
            and late > 0
            and late >= self.least_late_ratio * row.slope_bytes_per_s
            and row.levels_ratio is not None
            and row.levels_ratio >= self.least_levels_ratio
        )

    def _severity(self, metrics: Metrics, row: MemoryGrowth, hours: float | None) -> Severity:
        if hours is None or hours > self.warning_h:
            return "info"
        if hours * _HOUR_S * row.slope_bytes_per_s > self.most_times_seen * (row.last_bytes - row.first_bytes):
            return "info"
        soon = hours <= self.critical_h
        if len(metrics.epoch_starts) < _EPOCHS:  # a cache on purpose grows, too
            return "warning" if soon else "info"
        return "critical" if soon else "warning"


def _for_how_long(hours: float) -> str:
    if hours >= 48:
        return f"{hours / 24:,.0f} days"
    return f"{hours:.2g} h" if hours >= 1 else f"{60 * hours:.0f} min"


def _advice(metrics: Metrics, row: MemoryGrowth) -> str:
    if row.of == _WORKERS:
        dataset = metrics.loader.dataset if metrics.loader is not None else ""
        return (
            f"Limit what {dataset or 'the Dataset'} keeps per sample (caches, lists). Without persistent workers it is "
            "freed after each epoch."
        )
    return kept_items(metrics) or (
        f"Find the list, cache or graph that {metrics.run.get('model.class') or 'the module'} or a callback fills in "
        "every step. Keep loss.detach() instead of loss, clear lists in on_train_epoch_end, limit caches. python -X "
        "tracemalloc names the lines."
    )
