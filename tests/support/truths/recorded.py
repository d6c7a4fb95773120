"""A source of reports: a trace that others recorded on a GPU, as the window of a run whose steps are all like it."""

import gzip
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lightning_gpuprof.model.journal import Value, WindowRecord
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.trace.facts import window_facts
from lightning_gpuprof.trace.reader import Trace
from truths.gpu_runs import GpuRun, analyse, report_of

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
"""Recorded traces beside this project; they may be absent."""

_NAME = "rank0.1700000000000000000.pt.trace.json.gz"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A run of 60 steps of which one window was traced.

    How long a step takes, and how much of it is the fetch, is what the trace itself has: the steps that were not traced
    are taken to be as long. So nothing is known of them but that.

    Attributes:
        name: Of the file, without its endings.
        conditions: What is known of the run beside the trace.
        run_steps: Steps of the run.
    """

    name: str
    conditions: Mapping[str, Value] = field(default_factory=dict)
    run_steps: int = 60

    @property
    def file(self) -> Path:
        """The trace, whether it is here or not."""
        return TRACES / f"{self.name}.json.gz"

    def __call__(self, folder: Path, seed: int) -> Path:
        """Read the trace and diagnose the run."""
        phases_us = _phases_us(self.file)
        run_folder = folder / "gpuprof"
        run_folder.mkdir()
        run = GpuRun(run_folder, self.conditions)
        with run.training():
            for number in range(self.run_steps):
                with run.one_step():
                    for phase, us in phases_us.items():
                        with run.part(phase):
                            run.python(us)
                if number == self.run_steps // 2:
                    plain = run_folder / "plain.json"
                    with gzip.open(self.file, "rb") as packed, plain.open("wb") as unpacked:
                        shutil.copyfileobj(packed, unpacked)
                    analyse(plain, run_folder / _NAME, number, number)
                    run.post(WindowRecord(start_step=number, stop_step=number, file=_NAME, reason="planned"))
        return report_of(run_folder)


def _phases_us(file: Path) -> dict[Phase, float]:
    """The fetch and all else of a step, which is called forward."""
    facts = window_facts(Trace.read(file, processes=1), start_step=0, stop_step=0)
    steps = max(1, len(facts.steps_us))
    whole_us = max((device.window_us for device in facts.devices), default=sum(facts.steps_us)) / steps
    fetch_us = min(whole_us, facts.dataloader_us / steps)
    return {"data_wait": fetch_us, "forward": whole_us - fetch_us, "optimizer": 0.0}
