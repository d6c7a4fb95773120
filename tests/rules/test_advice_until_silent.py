"""Advice is taken until no more comes, in runs that are computed anew from the settings: never contrary, never back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from example_runs import example_run
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_builder import replace as changed
from msgspec.structs import replace as stored
from trusted import assert_can_be_trusted

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.input_pipeline import enough_workers
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.pipeline import report_of

RECEIVE_MS = 0.4
"""What a batch from another process costs the step."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run whose speed follows from its settings: a loader that shares CPUs with a model.

    Attributes:
        cpus: That the run may use.
        compute_ms: Of a step on one thread.
        making_ms: Of a batch: CPU time.
        waiting: Of a batch: times as long for storage.
        on_gpu: Whether the model leaves the CPUs to the loader.
        workers: ``num_workers``.
        threads: Of torch.
    """

    cpus: int
    compute_ms: float
    making_ms: float
    waiting: float
    on_gpu: bool
    workers: int
    threads: int
    pinned: bool = False
    persistent: bool = False

    @property
    def batch_ms(self) -> float:
        return self.making_ms * (1 + self.waiting)

    @property
    def main_cpus(self) -> float:
        """Of the main process while it computes."""
        return 0.3 if self.on_gpu else float(min(self.threads, self.cpus))

    @property
    def model_ms(self) -> float:
        """A step without waiting for anything."""
        return self.compute_ms / (1 if self.on_gpu else self.main_cpus)

    @property
    def step_ms(self) -> float:
        if not self.workers:
            return self.model_ms + self.batch_ms
        work_ms = self.model_ms * self.main_cpus + self.making_ms
        return max(self.model_ms + RECEIVE_MS, self.batch_ms / self.workers, work_ms / self.cpus)

    def metrics(self) -> Metrics:
        """What is measured of it."""
        step_ms, model_ms = self.step_ms, self.model_ms
        worker_cpus = self.making_ms / step_ms if self.workers else 0.0
        own_cpus = model_ms * self.main_cpus / step_ms + (0.0 if self.workers else self.making_ms / step_ms)
        wanted = worker_cpus + self.main_cpus
        late_ratio = max(0.0, 1.0 - self.cpus / wanted) if self.workers else 0.0
        busy_ratio = self.batch_ms / step_ms / self.workers if self.workers else 0.0
        each_cpu = worker_cpus / max(self.workers, 1)
        parts: dict[Any, float] = {"forward": 0.4, "backward": 0.4, "optimizer": 0.15, "loop": 0.05}
        metrics = example_run(
            items_ms=0.95 * self.batch_ms,
            collate_ms=0.05 * self.batch_ms,
            workers=self.workers,
            compute_ms={**{name: part * model_ms for name, part in parts.items()}, "data_wait": step_ms - model_ms},
            each_worker={
                "cpu": each_cpu,
                "delay": min(each_cpu * late_ratio / (1 - late_ratio), 1 - each_cpu),
                "own_bytes": 20e6,
            },
            idle_ratio=max(0.0, 1.0 - busy_ratio),
            device_idle=max(0.01, 1.0 - model_ms / step_ms) if self.on_gpu else None,
            usable_cpus=float(self.cpus),
            process_cpus=own_cpus,
            worker_cpus=worker_cpus,
            others_cpus=0.02,
            persistent_workers=self.persistent,
            run_delay_ms=late_ratio * model_ms,
            run={"torch.num_threads": self.threads, **({"device.type": "cuda"} if self.on_gpu else {})},
        )
        made = stored(metrics.input, enough_workers=enough_workers(self.batch_ms, model_ms))
        return changed(metrics, input=made, loader=changed(metrics.loader, pin_memory=self.pinned))

    def after(self, finding: Finding) -> Training | None:
        """With the advice taken; None: it changes something that is no setting of this loader or of torch's threads."""
        change = finding.change
        if change is None or change.inside or change.call not in ("", "DataLoader"):
            return None
        names = {"num_workers": "workers", "pin_memory": "pinned", "persistent_workers": "persistent"}
        if not set(change.arguments) <= set(names):
            return None
        values: dict[str, Any] = {names[name]: value for name, value in change.arguments.items()}
        for line in change.add:
            if not line.startswith("torch.set_num_threads("):
                return None
            values["threads"] = int(line.partition("(")[2].rstrip(")"))
        return replace(self, **values)


TRAININGS = st.builds(
    Training,
    cpus=st.integers(1, 16),
    compute_ms=st.floats(5.0, 300.0),
    making_ms=st.floats(1.0, 150.0),
    waiting=st.floats(0.0, 0.1) | st.floats(4.0, 10.0),  # in between the best number lies between the CPUs and more
    on_gpu=st.booleans(),
    workers=st.integers(0, 16),
    threads=st.integers(1, 16),
    pinned=st.booleans(),
    persistent=st.booleans(),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(TRAININGS)
def test_taken_until_none_comes_advice_is_never_contrary_and_never_back(training: Training) -> None:
    seen = [training]
    while True:
        metrics = training.metrics()
        report = report_of(metrics)
        assert_can_be_trusted(report.findings, report.combined, report.verdict, dict(metrics.run))
        steps = [one for one in map(training.after, report.findings) if one is not None]
        if not steps:
            return
        assert steps[0] not in seen, (seen, report.findings[0])
        if steps[0].threads == training.threads:  # what a model gains from threads is not known
            assert steps[0].step_ms <= 1.2 * training.step_ms, (training, steps[0])
        training = steps[0]
        seen.append(training)
        assert len(seen) < 6, seen
