"""Small runs with all in which one with us may differ from one without."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from equipped import Equipped
from fake_allocator import MIB, FakeAllocator
from fake_device import LaggingDevice
from lightning.pytorch.loggers import Logger
from lightning.pytorch.profilers import SimpleProfiler
from noting_nvtx import NotingNvtx
from torch import nn
from torch.autograd import profiler as torch_profiler
from torch.utils.data import DataLoader, Dataset

from lightning_gpuprof import GpuProfiler, TraceConfig, annotate


class Rows(Dataset[torch.Tensor]):
    def __init__(self, size: int) -> None:
        self.rows = torch.arange(size * 6, dtype=torch.float32).reshape(size, 6).sin()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


class Model(pl.LightningModule):
    """Small, and everything in it that draws a random number or keeps a state shows in the weights."""

    asks_for_a_window_at = -1
    before_step: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, *, manual: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = not manual
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
        self.before_step()
        asks = self.trainer.fit_loop.total_batch_idx == self.asks_for_a_window_at
        if asks and signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:  # which would be the end
            os.kill(os.getpid(), signal.SIGUSR2)
        with annotate("noise"), annotate("drawn"):
            batch = batch + 0.01 * torch.randn_like(batch)
        loss = self.loss(batch)
        self.log("loss", loss, prog_bar=True)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        return None

    @annotate("loss")
    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        return self.net(batch).square().mean()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def test_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("test_loss", self.loss(batch))

    def predict_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.net(batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.05)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Kept(Logger):
    """Writes down the metrics that are the user's."""

    name = "kept"
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.metrics: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        theirs = {name: value for name, value in metrics.items() if not name.startswith("gpuprof/")}
        if theirs:
            self.metrics.append((step, theirs))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        pass


class Hooks(pl.Callback):
    """Writes down which hooks it was called in, with the trainer's counters."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []


def _noting(name: str) -> Callable[..., None]:
    def hook(self: Hooks, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self.seen.append((name, trainer.global_step, trainer.fit_loop.total_batch_idx))

    return hook


for _name in [name for name in vars(pl.Callback) if name.startswith("on_") or name in ("setup", "teardown")]:
    setattr(Hooks, _name, _noting(_name))


@dataclass
class Outcome:
    """All that may differ between a run with us and one without."""

    error: str = ""
    weights: str = ""
    optimizers: str = ""
    random_numbers: str = ""
    checkpoints: dict[str, str] = field(default_factory=dict)
    metrics: list[Any] = field(default_factory=list)
    hooks: list[Any] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)
    result: str = ""
    trainer_as_found: str = ""
    process_as_found: str = ""

    def differences(self, other: Outcome) -> list[str]:
        """Names of what differs, with both values where they are short."""
        return [
            f"{f.name}: {str(getattr(self, f.name))[:300]} against {str(getattr(other, f.name))[:300]}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(other, f.name)
        ]


def fingerprint(thing: object) -> str:
    """Of every bit of tensors and numbers in whatever holds them."""
    digest = hashlib.sha256()

    def add(item: object) -> None:
        if isinstance(item, torch.Tensor):
            digest.update(str((item.dtype, item.shape)).encode())
            digest.update(item.detach().cpu().numpy().tobytes())
        elif isinstance(item, np.ndarray):
            digest.update(item.tobytes())
        elif isinstance(item, dict):
            for key, value in item.items():
                digest.update(repr(key).encode())
                add(value)
        elif isinstance(item, (list, tuple)):
            digest.update(b"[")
            for value in item:
                add(value)
        else:
            digest.update(repr(item).encode())

    add(thing)
    return digest.hexdigest()[:16]


def run_fit(trainer: pl.Trainer, model: Model, workers: int = 0) -> object:
    train = DataLoader(Rows(20), batch_size=2, shuffle=True, num_workers=workers)
    return trainer.fit(model, train, DataLoader(Rows(4), batch_size=2))  # type: ignore[func-returns-value]


def _run_out_of_memory(trainer: pl.Trainer, model: Model) -> object:
    before = model.before_step

    def all_is_full() -> None:
        before()
        if trainer.fit_loop.total_batch_idx == 7:
            FakeAllocator(held=MIB).alloc(1 << 40)

    model.before_step = all_is_full
    return run_fit(trainer, model)


def _run_validate(trainer: pl.Trainer, model: Model) -> object:
    return trainer.validate(model, DataLoader(Rows(12), batch_size=2), verbose=False)


def _run_predict(trainer: pl.Trainer, model: Model) -> object:
    return trainer.predict(model, DataLoader(Rows(12), batch_size=2))


@dataclass(frozen=True)
class Scenario:
    """A run and how we take part in it."""

    name: str
    run: Callable[[pl.Trainer, Model], object]
    profiler: Callable[[Path], GpuProfiler]
    trainer: Callable[[], dict[str, Any]] = dict
    manual: bool = False
    asks: bool = False
    """A window is asked for by signal."""


def equipped(folder: Path, **options: Any) -> GpuProfiler:
    hardware = {
        "events": lambda root_device: LaggingDevice(100_000),
        "ranges": NotingNvtx,
        "allocator": lambda root_device: FakeAllocator(held=MIB),
    }
    own: dict[str, Any] = {"dirpath": str(folder / "gpuprof"), "windows": [], "reports": ["json"], **options}
    return Equipped(hardware, nvtx=True, log_every_n_steps=2, **own)


def _plain(folder: Path, **options: Any) -> GpuProfiler:
    return GpuProfiler(dirpath=str(folder / "gpuprof"), reports=["json"], nvml=False, **options)


_FIT: dict[str, Any] = {
    "max_epochs": 2,
    "accumulate_grad_batches": 2,
    "gradient_clip_val": 1.0,
    "log_every_n_steps": 2,
}

SCENARIOS = {
    s.name: s
    for s in (
        Scenario("fit", run_fit, lambda folder: equipped(folder, reports=["tensorboard", "json"]), lambda: _FIT),
        Scenario(
            "own profiler",
            run_fit,
            lambda folder: _plain(folder, windows=[]),
            lambda: {"max_epochs": 2, "profiler": SimpleProfiler()},
            manual=True,
        ),
        Scenario("validate", _run_validate, lambda folder: _plain(folder, windows=[])),
        Scenario("predict", _run_predict, lambda folder: _plain(folder, windows=[])),
        Scenario(
            "windows",
            run_fit,
            lambda folder: equipped(
                folder,
                windows=[(2, 3)],
                trace=TraceConfig(active=1, warmup=1, on_slow_step=True, every_n_steps=9, with_stack=True),
            ),
            lambda: _FIT,
            asks=True,
        ),
        Scenario(
            "written beside",
            run_fit,
            lambda folder: equipped(folder, windows=[(2, 3)], trace=TraceConfig(active=1, warmup=1)),
            lambda: _FIT,
        ),
        Scenario(
            "out of memory",
            _run_out_of_memory,
            lambda folder: equipped(
                folder, windows=[(2, 9)], trace=TraceConfig(active=1, warmup=1, memory_snapshot=True, ranks=[0])
            ),
            lambda: _FIT,
        ),
    )
}
"""Those in which a run takes the least time first."""


@contextmanager
def traced(function: Callable[[FrameType, str, Any], Any] | None) -> Iterator[None]:
    """Have all that begins inside traced, in this thread and in those that are started."""
    before, before_in_threads = sys.gettrace(), threading.gettrace()
    if function is not None:
        threading.settrace(function)
        sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]


def play(
    scenario: Scenario,
    folder: Path,
    *,
    with_us: bool,
    trace: Callable[[FrameType, str, Any], Any] | None = None,
    change: Callable[[Model], None] = lambda model: None,
) -> tuple[Outcome, list[str]]:
    """Run a scenario.

    Args:
        scenario: What.
        folder: For everything that is written.
        with_us: Whether our callback takes part.
        trace: Tracing function around the run.
        change: Makes something of the model before it runs.

    Returns:
        What came out of it, and what we warned of.
    """
    process_before = _process_state()
    pl.seed_everything(3, verbose=False)
    np.random.seed(3)
    random.seed(3)
    model = Model(manual=scenario.manual)
    if with_us and scenario.asks:
        model.asks_for_a_window_at = 13
    if trace is not None:  # the interpreter forgets a tracing function that raises
        model.before_step = lambda: sys.settrace(trace)
    change(model)
    hooks, logger = Hooks(), Kept()
    trainer = pl.Trainer(
        accelerator="cpu",
        default_root_dir=str(folder),
        callbacks=[
            *([scenario.profiler(folder)] if with_us else []),
            hooks,
            pl.callbacks.ModelCheckpoint(folder / "checkpoints", every_n_epochs=1, save_top_k=-1),
            pl.callbacks.LearningRateMonitor("step"),
        ],
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=logger,
        num_sanity_val_steps=1,
        **scenario.trainer(),
    )
    before = _trainer_state(trainer)
    outcome = Outcome()
    result: object = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with traced(trace):
                result = scenario.run(trainer, model)
        except BaseException as error:
            outcome.error = f"{type(error).__name__}: {error}"
        _wait_for_jobs()  # which may warn, too
    outcome.weights = fingerprint(model.state_dict())
    outcome.optimizers = fingerprint([o.state_dict() for o in trainer.optimizers])
    outcome.random_numbers = fingerprint([torch.get_rng_state(), np.random.get_state(), random.getstate()])
    outcome.checkpoints = {
        path.name: fingerprint([_load(path)[part] for part in ("state_dict", "optimizer_states", "loops")])
        for path in sorted((folder / "checkpoints").glob("*.ckpt"))
    }
    outcome.metrics = logger.metrics
    outcome.hooks = hooks.seen
    outcome.counters = {
        "global_step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "batches": trainer.fit_loop.total_batch_idx,
        "status": str(trainer.state.status),
        "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
    }
    outcome.result = fingerprint(result)
    if isinstance(trainer.profiler, SimpleProfiler):
        outcome.counters["profiled"] = {
            name: len(times) for name, times in trainer.profiler.recorded_durations.items() if "GpuProfiler" not in name
        }
    after = _trainer_state(trainer)
    outcome.trainer_as_found = "; ".join(f"{name}: {after[name]!r}" for name in after if after[name] != before[name])
    outcome.process_as_found = _changes(process_before)
    return outcome, [str(w.message) for w in told if "gpuprof" in str(w.message)]


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(io.BytesIO(path.read_bytes()), weights_only=False)
    return loaded


def _trainer_state(trainer: Any) -> dict[str, object]:
    loops = [trainer.fit_loop, trainer.fit_loop.epoch_loop, trainer.fit_loop.epoch_loop.val_loop]
    loops += [trainer.validate_loop, trainer.predict_loop]
    state: dict[str, object] = {"profiler": id(trainer.__dict__.get("profiler"))}
    for number, loop in enumerate(loops):
        state[f"{type(loop).__name__} {number}"] = sorted(n for n, v in vars(loop).items() if callable(v))
    return state


OTHERS_THREADS = ("ThreadPoolExecutor", "tqdm_monitor")
"""Started by torch and by progress bars when they please; ours are called ``gpuprof-…``."""


def _process_state() -> dict[str, object]:
    from lightning_gpuprof.capture import annotated_regions

    return {
        "threads": sorted(t.name for t in threading.enumerate() if not t.name.startswith(OTHERS_THREADS)),
        "files": sorted(_open_files()),
        "signal": signal.getsignal(signal.SIGUSR2),
        "torch.profiler": torch_profiler.profile._prepare_trace,
        "profiling": torch.autograd._profiler_enabled(),  # type: ignore[attr-defined]
        "annotations": annotated_regions._recording,
    }


def _open_files() -> list[str]:
    found = []
    folder = Path("/proc/self/fd")
    for descriptor in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):  # that of the folder itself
            found.append(str(descriptor.readlink()))
    return [name for name in found if "rank0" in name or name.endswith("schedstat")]


def _wait_for_jobs() -> None:
    """Until no trace is analysed any more: that is done on CPUs that nobody else wants."""
    deadline = time.monotonic() + 60.0
    while any(t.name == "gpuprof-trace-job" for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.02)


def _changes(before: dict[str, object]) -> str:
    """What of the process is not as it was; what is about to end is waited for."""
    deadline = time.monotonic() + 60.0
    while True:
        after = _process_state()
        changed = [f"{name}: {after[name]!r}" for name in after if after[name] != before[name]]
        if not changed or time.monotonic() > deadline:
            return "; ".join(changed)
        time.sleep(0.02)


def torch_profiler_works() -> bool:
    """Whether torch.profiler can be used by the process now."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        torch.ones(3).sum()
    return len(own.events()) > 0
