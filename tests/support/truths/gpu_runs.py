"""A source of reports: a training on a GPU that is computed instead of had.

A program says what host and device do in a step. Its clock drives the real step clock, journal, trace reader,
analyses and rules; the folder is that of a real run. The device is a model of one (:mod:`truths.gpu_trace`), so that
what holds it up is known: nothing else is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from random import Random

import msgspec
from sample_journals import header

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.rank_summary import summarise, summary_path
from lightning_gpuprof.capture.journal_file import open_journal
from lightning_gpuprof.capture.journal_writer import JournalWriter
from lightning_gpuprof.capture.step_clock import StepClock
from lightning_gpuprof.model.journal import (
    PROFILED,
    Conditions,
    Footer,
    Record,
    Sample,
    Value,
    WindowRecord,
)
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.rank_summary import RankSummary
from lightning_gpuprof.pipeline import make_report
from lightning_gpuprof.sinks import json_report
from lightning_gpuprof.trace import job
from truths.gpu_trace import GpuTrace, Json

A100: Mapping[str, object] = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "computeMajor": 8,
    "computeMinor": 0,
    "totalGlobalMem": 42_298_834_944,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
    "warpSize": 32,
    "numSms": 108,
}
HEALTHY: Mapping[str, Value] = {
    "device.type": "cuda",
    "device.name": "NVIDIA A100-SXM4-40GB",
    "device.capability": "8.0",
    "trainer.precision": "bf16-mixed",
    "trainer.world_size": 1,
    "trainer.num_nodes": 1,
    "trainer.log_every_n_steps": 50,
    "loader.kind": "DataLoader",
    "loader.batch_size": 32,
    "loader.num_workers": 4,
    "loader.pin_memory": True,
    "loader.persistent_workers": True,
    "flags.float32_matmul_precision": "high",
    "flags.cudnn_tf32": True,
    "flags.cudnn_benchmark": True,
    "flags.detect_anomaly": False,
    "compile.state": "none",
    "version.lightning": "2.6.6",
}
"""Conditions of a run in which nothing is wrong."""

FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
_STRATEGY = "[Strategy]SingleDeviceStrategy"
_ACTIONS: Mapping[Phase, str] = {
    "data_wait": "[_TrainingEpochLoop].train_dataloader_next",
    "h2d": f"{_STRATEGY}.batch_to_device",
    "forward": f"{_STRATEGY}.training_step",
    "backward": f"{_STRATEGY}.backward",
    "optimizer": "[LightningModule]Net.optimizer_step",
    "callbacks": "[Callback]TQDMProgressBar.on_train_batch_end",
}
"""As Lightning names them; its check of all ranks has no name in a trace."""

_SETUP_US = 2e6
_STEPS_OF_WINDOW = 5
_TRACE = "rank0.1700000000000000000.pt.trace.json"
_INFLATION = 1.15
"""What the host takes longer in traced steps."""

_SPREAD = 0.02
"""Of the host's and the device's times from step to step."""


Readings = dict[str, dict[str, float | None]]
"""Values that a sampler reads, by what they are of."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a training does.

    Attributes:
        step: What host and device do in one step; where phases begin and end is part of it.
        conditions: That differ from a healthy run's.
        document: Further entries of the trace.
        samples: What the sampler of the device's memory reads in a step, by the number of steps so far.
        held: What model and optimizer hold, as the sampler reads it once.
        driver: What the driver says of the device, in each step.
        batch: The shapes of a batch, by the number of steps so far; None: it is not inspected.
        others: What the other ranks leave, by what this one does.
    """

    step: Callable[[GpuRun], None]
    conditions: Mapping[str, Value] = field(default_factory=dict)
    document: Mapping[str, object] = field(default_factory=dict)
    samples: Callable[[int], Readings] = lambda steps: {}
    held: Readings = field(default_factory=dict)
    driver: Mapping[str, float] = field(default_factory=dict)
    batch: Callable[[int], str | None] = lambda steps: None
    others: Callable[[RankSummary], Sequence[RankSummary]] | None = None


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A whole training of a program.

    Attributes:
        program: Makes it; what is drawn decides how large the fault is. Without the fault it is the healthy twin.
        faulty: Whether the fault is in it.
        steps: Of the training; five in its middle are traced.
        factor: All durations are multiplied with it.
        before_us: Time that the profiler takes before the first traced step.
    """

    program: Callable[[Random, bool], Program]
    faulty: bool = True
    steps: int = 120
    factor: float = 1.0
    before_us: float = 0.0

    def __call__(self, folder: Path, seed: int) -> Path:
        random = Random(seed)
        program = self.program(random, self.faulty)
        run_folder = folder / "gpuprof"
        run_folder.mkdir()
        run = GpuRun(run_folder, {**HEALTHY, **program.conditions})
        first = self.steps // 2
        with run.training():
            for subject, values in program.held.items():
                run.sample("memory", subject, values)
            for number in range(self.steps):
                traced = first <= number < first + _STEPS_OF_WINDOW
                if number == first:
                    run.begin_window(self.before_us * self.factor)
                run.host_factor = self.factor * random.gauss(1.0, _SPREAD) * (_INFLATION if traced else 1.0)
                run.device_factor = self.factor * random.gauss(1.0, _SPREAD)
                with run.one_step():
                    if (shape := program.batch(number)) is not None:
                        seen = {"age_s": 0.0, "elements_count": float(prod(map(int, shape.split("x"))))}
                        run.sample("input", f"loader0.shapes:{shape}", seen)
                    program.step(run)
                if number == first + _STEPS_OF_WINDOW - 1:
                    run.end_window(first, {**program.document})
                for subject, values in program.samples(number + 1).items():
                    run.sample("memory", subject, {"batch_index": float(number), **values})
                if program.driver:
                    run.sample("nvml", "gpu0", {**program.driver})
        if program.others is not None:
            own = summarise(read_journal(run_folder / "rank0.jsonl"))
            for other in program.others(own):
                summary_path(run_folder / f"rank{other.rank}.jsonl").write_bytes(msgspec.json.encode(other))
        return report_of(run_folder)


def report_of(folder: Path) -> Path:
    """The real report of a folder with a journal and its traces."""
    report = make_report(folder)
    target = folder / json_report.FILE_NAME
    json_report.write(report, target)
    return target


class GpuRun(GpuTrace):
    """A run that happens while its methods are called, and keeps its journal and its trace.

    Args:
        folder: Of the run.
        conditions: Of the journal.
    """

    def __init__(self, folder: Path, conditions: Mapping[str, Value]) -> None:
        super().__init__()
        self.folder = folder
        self.is_recording = False
        self._pause_us = 0.0
        self.waited_us = self.without_cpu_us = 0.0
        """In which the main thread slept, and in which it was ready but had no CPU."""
        self._clock = StepClock(
            now=self._now_ns,
            cpu_now=lambda: int((self.now - self.waited_us - self.without_cpu_us) * 1e3),
            delay_now=lambda: int(self.without_cpu_us * 1e3),
            start_ns=0,
        )
        self._slots: dict[Phase, tuple[AbstractContextManager[object], AbstractContextManager[object]]] = {}
        self._cpu = False
        self._clock.set_cpu_mode_listener(self._sample_cpu)
        self._failures: list[OSError] = []
        world_size = conditions.get("trainer.world_size")
        begun = header(run_id="simulated", world_size=world_size if isinstance(world_size, int) else 1)
        self._writer = JournalWriter(
            open_journal(folder / "rank0.jsonl"), self._clock, header=begun, on_failure=self._failures.append
        )
        self._writer.post(Conditions(values=dict(conditions)))

    def _now_ns(self) -> int:
        return int(self.now * 1e3)

    def _sample_cpu(self, cpu: bool) -> None:
        self._cpu = cpu

    @contextmanager
    def training(self) -> Iterator[None]:
        """The training, setup and end included."""
        self.now += _SETUP_US
        self.done = self.communicated = self.now
        self._clock.begin_training(-1, 0)
        self._clock.begin_epoch(0, -1)
        yield
        self._clock.end_epoch()
        self._clock.open_segment(None)
        self._writer.close([Footer(end_ns=self._now_ns(), status="finished", overhead={})], timeout_s=60)
        if self._failures:
            raise self._failures[0]

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """One training step."""
        self._clock.begin_step()
        self.now += self._pause_us
        self._pause_us = 0.0
        with self.step():
            yield

    @contextmanager
    def part(self, phase: Phase) -> Iterator[None]:
        """A phase of a step, in the journal and, under Lightning's name, in the trace."""
        if phase not in self._slots:
            slot = self._clock.slot(_ACTIONS.get(phase, phase), phase)
            counts = phase == "optimizer"
            self._slots[phase] = (
                self._clock.context(slot, counts=counts),
                self._clock.context(slot, counts=counts, cpu=True),
            )
        named = self.phase(_ACTIONS[phase]) if phase in _ACTIONS else nullcontext()
        with named, self._slots[phase][self._cpu]:
            yield

    def begin_window(self, before_us: float) -> None:
        """Record from now on; the profiler needs some time for that, which is its own."""
        self._clock.set_standing_flags(PROFILED)
        self.is_recording = True
        self._pause_us = before_us
        self._window_ns = self._now_ns()

    def end_window(self, first: int, document: Json) -> None:
        """Stop recording, and have the trace analysed as a real run has it."""
        self.is_recording = False
        self._clock.set_standing_flags(0)
        plain, final = self.folder / "plain.json", self.folder / f"{_TRACE}.gz"
        plain.write_text(json.dumps(self.document(A100, **document)), encoding="utf-8")
        analyse(plain, final, first, first + _STEPS_OF_WINDOW - 1)
        self.post(
            WindowRecord(
                start_step=first,
                stop_step=first + _STEPS_OF_WINDOW - 1,
                start_ns=self._window_ns,
                stop_ns=self._now_ns(),
                file=final.name,
                reason="planned",
            )
        )

    def sample(self, source: str, subject: str, values: dict[str, float | None]) -> None:
        """A reading of a sampler, now."""
        self.post(Sample(source=source, subject=subject, t_ns=self._now_ns(), values=values))

    def post(self, record: Record) -> None:
        """Another record of the journal."""
        self._writer.post(record)


def analyse(plain: Path, final: Path, start_step: int, stop_step: int) -> None:
    """What the process beside a real run does with a trace; ``plain`` is deleted.

    Raises:
        RuntimeError: It could not.
    """
    facts = final.with_name(final.name.replace(".pt.trace.json.gz", ".facts.json"))
    if job.run([str(plain), str(final), str(facts), str(start_step), str(stop_step)]):
        raise RuntimeError(f"{final.name} could not be analysed")
