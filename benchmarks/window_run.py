"""One training run with one trace window, in a process of its own: when its steps began, and what its profiler did.

``window_stall.py`` starts it, as ``python benchmarks/window_run.py SETTINGS``, and reads the one line of JSON that it
prints last. The workload has many small operators on one CPU thread, so that a window holds many events and hardly
any work: the worst case for whoever records it.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.profilers import Profiler, PyTorchProfiler
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader

WIDTH = 8
BATCH_SIZE = 4
WARMUP = 2
"""Steps that are traced and discarded."""
ACTIVE = 5
"""Steps that the window keeps."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one run does."""

    variant: str
    blocks: int
    before: int
    """Steps before the profiler does anything."""
    after: int
    """Steps after the window."""
    accelerator: str
    with_end: bool
    """Also do what the profiler does after the last step, where that takes long."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Something that the profiler did."""

    what: str
    begin_ns: int
    end_ns: int
    beside: bool = False
    """On another thread than the training's."""


@dataclass(frozen=True, kw_only=True)
class WindowRun:
    """What one run measured; times are of ``time.perf_counter_ns``."""

    entered_ns: list[int]
    """Entries of ``training_step``."""
    finished_ns: int | None
    """``fit`` returned; None if the run was left after its last step."""
    calls: list[Call]
    trace_events: int
    """Events in the trace that was written; 0 without one."""
    trace_bytes: int
    """Size of that trace's JSON, uncompressed."""

    @staticmethod
    def parse(line: str) -> WindowRun:
        """Read what ``main`` printed."""
        document: Any = json.loads(line)
        return WindowRun(**{**document, "calls": [Call(**call) for call in document["calls"]]})


class EnoughError(BaseException):
    """The last step was seen. No ``Exception``: nobody is to handle it on its way out."""


class Block(nn.Module):
    """A residual block; small enough for its operators to be nothing but overhead."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        """One block."""
        return features + nn.functional.gelu(self.linear(self.norm(features)))


class Deep(LightningModule):
    """Very many small operators; notes when each training step begins."""

    def __init__(self, blocks: int, leave_at: int | None) -> None:
        super().__init__()
        self.network = nn.Sequential(*(Block() for _ in range(blocks)))
        self.entered_ns: list[int] = []
        self._leave_at = leave_at

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        """A loss without meaning."""
        self.entered_ns.append(time.perf_counter_ns())
        if len(self.entered_ns) == self._leave_at:
            raise EnoughError
        return self.network(batch).square().mean()  # type: ignore[no-any-return]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD, one operator for each parameter."""
        return torch.optim.SGD(self.parameters(), lr=1e-6, foreach=False)


@dataclass(frozen=True, kw_only=True)
class Instruments:
    """What a variant hands to the Trainer."""

    callbacks: tuple[Callback, ...] = ()
    profiler: Profiler | None = None
    slow_end: bool = False
    """After the last step much time is spent on what the steps are not kept waiting for."""


def nothing(folder: Path, before: int) -> Instruments:
    """No profiler: what the others are held against."""
    return Instruments()


def gpuprof(folder: Path, before: int, *, record_shapes: bool = True, background: bool | None = None) -> Instruments:
    """Ours: the window, and everything else that is on by default."""
    from lightning_gpuprof import GpuProfiler, TraceConfig

    trace = TraceConfig(active=ACTIVE, warmup=WARMUP, record_shapes=record_shapes, background_stop=background)
    window = (before + WARMUP, before + WARMUP + ACTIVE - 1)
    return Instruments(callbacks=(GpuProfiler(windows=[window], trace=trace, dirpath=str(folder), reports=["json"]),))


def lightning_profiler(folder: Path, before: int, *, gzipped: bool, record_shapes: bool) -> Instruments:
    """Lightning's profiler with the same window; by itself it exports plain JSON."""
    handler = {"on_trace_ready": tensorboard_trace_handler(str(folder), "worker", use_gzip=True)} if gzipped else {}
    profiler = PyTorchProfiler(
        dirpath=folder,
        filename="pytorch",
        schedule=schedule(wait=before, warmup=WARMUP, active=ACTIVE, repeat=1),
        record_shapes=record_shapes,
        **handler,
    )
    return Instruments(profiler=profiler, slow_end=True)


VARIANTS: Mapping[str, Callable[[Path, int], Instruments]] = {
    "none": nothing,
    "gpuprof": gpuprof,
    "gpuprof-no-shapes": partial(gpuprof, record_shapes=False),
    "gpuprof-background": partial(gpuprof, background=True),
    "gpuprof-waiting": partial(gpuprof, background=False),
    "gpuprof-waiting-no-shapes": partial(gpuprof, background=False, record_shapes=False),
    "pytorch": partial(lightning_profiler, gzipped=False, record_shapes=False),
    "pytorch-gzip": partial(lightning_profiler, gzipped=True, record_shapes=False),
    "pytorch-gzip-shapes": partial(lightning_profiler, gzipped=True, record_shapes=True),
}

WATCHED = {"prepare_trace": "prepare", "start_trace": "start", "stop_trace": "stop", "export_chrome_trace": "export"}
"""Methods of torch's profiler, which every variant goes through once per window."""


WATCHED_BESIDE = {"_collect": "stop", "_save_to": "export"}
"""What does the same on a thread of ours."""


def watch(calls: list[Call]) -> None:
    """Note from now on when torch's profiler is prepared, started and stopped and when it exports."""
    from lightning_gpuprof.capture.background_stop import BackgroundStop

    def noting(method: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(method)
        def noted(*arguments: Any, **keywords: Any) -> Any:
            begin = time.perf_counter_ns()
            try:
                return method(*arguments, **keywords)
            finally:
                beside = threading.current_thread() is not threading.main_thread()
                calls.append(Call(what=what, begin_ns=begin, end_ns=time.perf_counter_ns(), beside=beside))

        return noted

    profiler = torch.profiler._KinetoProfile  # type: ignore[attr-defined]
    for name, what in WATCHED.items():
        setattr(profiler, name, noting(getattr(profiler, name), what))
    for name, what in WATCHED_BESIDE.items():
        setattr(BackgroundStop, name, noting(getattr(BackgroundStop, name), what))


def use_once(accelerator: str) -> None:
    """The first use of torch's profiler in a process costs more than the others; this is it, for all variants."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if accelerator == "gpu" else [])]
    with torch.profiler.profile(activities=activities):
        torch.zeros(1, device="cuda" if accelerator == "gpu" else "cpu")


def written_trace(folder: Path) -> tuple[int, int]:
    """Events with a duration, and bytes, of the one trace in the folder; zeros if there is none."""
    for path in sorted(folder.rglob("*.pt.trace.json*")):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return text.count(b'"ph": "X"'), len(text)
    return 0, 0


def run(settings: Settings) -> WindowRun:
    """Train once."""
    seed_everything(1, verbose=False)
    torch.set_num_threads(1)
    use_once(settings.accelerator)
    calls: list[Call] = []
    watch(calls)
    steps = settings.before + WARMUP + ACTIVE + settings.after
    finished_ns: int | None = None
    with tempfile.TemporaryDirectory(prefix="window-") as name:
        folder = Path(name)
        instruments = VARIANTS[settings.variant](folder, settings.before)
        leaves = instruments.slow_end and not settings.with_end
        model = Deep(settings.blocks, leave_at=steps if leaves else None)
        trainer = Trainer(
            accelerator=settings.accelerator,
            devices=1,
            max_steps=steps,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=list(instruments.callbacks),
            profiler=instruments.profiler,
        )
        batches = [torch.randn(BATCH_SIZE, WIDTH) for _ in range(steps)]
        try:
            trainer.fit(model, DataLoader(batches, batch_size=None))  # type: ignore[arg-type]
            finished_ns = time.perf_counter_ns()
        except EnoughError:
            pass
        events, size = written_trace(folder)
    return WindowRun(
        entered_ns=model.entered_ns, finished_ns=finished_ns, calls=calls, trace_events=events, trace_bytes=size
    )


def main() -> None:
    """Run what the argument says, print what was measured as the last line."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    measured = run(Settings(**json.loads(sys.argv[1])))
    print(json.dumps(asdict(measured)), flush=True)
    os._exit(0)  # freeing what a profiler that was left in the middle holds takes long


if __name__ == "__main__":
    main()
