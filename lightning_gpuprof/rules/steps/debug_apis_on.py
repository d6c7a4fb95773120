"""Points out settings for debugging that are in effect and make every step slower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from lightning_gpuprof.model.finding import Evidence, Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal, condition, is_distributed, source_of, threshold
from lightning_gpuprof.rules.wording import counted, listed

_OFF = frozenset({"", "0", "false", "off", "none"})


def _on(value: Value) -> bool:
    return str(value).lower() not in _OFF and value is not None


def _one_of(*words: str) -> Callable[[Value], bool]:
    return lambda value: str(value).upper() in words


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """A fact of the run that means debugging, and how it is turned off."""

    fact: str
    name: str
    cost: str
    off: str
    is_on: Callable[[Value], bool] = _on
    cuda_only: bool = False
    ranks_only: bool = False
    """It does something only where several ranks train together."""


_SETTINGS = (
    _Setting(
        fact="flags.detect_anomaly",
        name="detect_anomaly",
        cost="backward records a stack for each operation and looks for NaN",
        off="Trainer(detect_anomaly=False), no torch.autograd.set_detect_anomaly",
    ),
    _Setting(
        fact="trainer.detect_anomaly",
        name="detect_anomaly",
        cost="backward records a stack for each operation and looks for NaN",
        off="Trainer(detect_anomaly=False), no torch.autograd.set_detect_anomaly",
    ),
    _Setting(
        fact="env.CUDA_LAUNCH_BLOCKING",
        name="CUDA_LAUNCH_BLOCKING",
        cost="the host waits for each kernel",
        off="unset CUDA_LAUNCH_BLOCKING",
        cuda_only=True,
    ),
    _Setting(
        fact="env.PYTORCH_NO_CUDA_MEMORY_CACHING",
        name="PYTORCH_NO_CUDA_MEMORY_CACHING",
        cost="each tensor is a cudaMalloc",
        off="unset PYTORCH_NO_CUDA_MEMORY_CACHING",
        cuda_only=True,
    ),
    _Setting(
        fact="env.COMPUTE_SANITIZER_PROCESS_TREE",
        name="the compute sanitizer",
        cost="each kernel is instrumented",
        off="run without compute-sanitizer",
        cuda_only=True,
    ),
    _Setting(
        fact="env.TORCH_DISTRIBUTED_DEBUG",
        name="TORCH_DISTRIBUTED_DEBUG=DETAIL",
        cost="collectives are checked against each other",
        off="unset TORCH_DISTRIBUTED_DEBUG",
        is_on=_one_of("DETAIL"),
        ranks_only=True,
    ),
    _Setting(
        fact="env.NCCL_DEBUG",
        name="NCCL_DEBUG",
        cost="NCCL writes lines",
        off="unset NCCL_DEBUG",
        is_on=_one_of("INFO", "TRACE"),
        ranks_only=True,
    ),
    _Setting(
        fact="env.TORCH_COMPILE_DEBUG",
        name="TORCH_COMPILE_DEBUG",
        cost="each compilation writes its graphs",
        off="unset TORCH_COMPILE_DEBUG",
    ),
    _Setting(
        fact="env.PYTHONMALLOC",
        name="PYTHONMALLOC=debug",
        cost="each object is checked when it is made and freed",
        off="unset PYTHONMALLOC",
        is_on=_one_of("DEBUG", "MALLOC_DEBUG", "PYMALLOC_DEBUG"),
    ),
    _Setting(
        fact="flags.python_debugger",
        name="a Python tracing function (debugger, coverage)",
        cost="each line of Python calls it",
        off="run without debugger and coverage",
    ),
    _Setting(
        fact="flags.compile_disabled",
        name="TORCHDYNAMO_DISABLE",
        cost="torch.compile does nothing",
        off="unset TORCHDYNAMO_DISABLE",
    ),
    _Setting(
        fact="trainer.profiler",
        name="Trainer(profiler=AdvancedProfiler)",
        cost="cProfile is called at each function",
        off="leave the argument profiler out",
        is_on=lambda value: str(value) == "AdvancedProfiler",
    ),
)


@dataclass(frozen=True, kw_only=True)
class DebugApisOn:
    """Settings for debugging are in effect, which make every step slower.

    ## What it means

    Anomaly detection, blocking launches, sanitizers, tracing functions of debuggers and the like find errors at the
    cost of speed, often a factor of two and more. They are easily left on.

    ## How it is measured

    From the conditions of the run: arguments of the Trainer, flags of torch and named environment variables (see the
    page on conditions). What each costs in this run is not measured: it is information only, without a gain. Compare a
    run without it.

    ## When it is wrong

    - The setting may be wanted: then there is nothing to do.
    - What only collectives heed (`NCCL_DEBUG`, `TORCH_DISTRIBUTED_DEBUG`) counts where several ranks train.
    - `deterministic=True` is not among them: reproducible results are no debugging.
    - A setting that came into effect during the run is not seen.

    ## What to do

    Turn the named setting off for runs that are to be fast, and compare with `gpuprof compare`.

    ## Example

    "Turn off detect_anomaly: Trainer(detect_anomaly=False)."
    """

    id: ClassVar[str] = "debug-apis-on"

    least_count: int = threshold(1, source="PyTorch tuning guide: disable debugging APIs")

    def check(self, metrics: Metrics) -> Finding | None:
        """Look at the conditions."""
        if not any(name.startswith(("flags.", "trainer.")) for name in metrics.run):
            raise MissingSignal("the settings of the run are not known")
        cuda, ranks = condition(metrics, "device.type") == "cuda", is_distributed(metrics)
        found = {
            s.name: s
            for s in _SETTINGS
            if (value := condition(metrics, s.fact)) is not None
            and s.is_on(value)
            and (cuda or not s.cuda_only)
            and (ranks or not s.ranks_only)
        }
        if len(found) < self.least_count:
            return None
        settings = list(found.values())
        return Finding(
            rule=self.id,
            severity="info",
            subject=listed([s.name for s in settings]),
            summary=(
                f"{counted(len(settings), 'setting')} for debugging {'is' if len(settings) == 1 else 'are'} on: "
                f"{listed([f'{s.name} ({s.cost})' for s in settings])}. What that costs here was not measured."
            ),
            advice=(
                f"Turn off what is not needed: {'; '.join(s.off for s in settings)}. Then: gpuprof compare BEFORE "
                "AFTER."
            ),
            evidence=(
                Evidence(
                    name="settings for debugging",
                    value=len(settings),
                    limit=self.least_count,
                    source=source_of(type(self), "least_count"),
                ),
                *(Evidence(name=s.fact, value=str(condition(metrics, s.fact))) for s in settings),
            ),
            confidence=0.9,
        )
