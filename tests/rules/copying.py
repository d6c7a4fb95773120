"""Windows of steps that copy something and then compute."""

from __future__ import annotations

from gpu_trace import GpuTrace, recorded_steps

from lightning_gpuprof.model.window import WindowFacts

PAGEABLE = "HtoD (Pageable -> Device)"
PINNED = "HtoD (Pinned -> Device)"
BACK = "DtoH (Device -> Pageable)"


def copying(
    kind: str,
    *,
    us: float,
    nbytes: int,
    copies: int = 1,
    kernels: int = 100,
    kernel_us: float = 100.0,
    after_us: float = 0.0,
    phase: str = "batch_to_device",
) -> WindowFacts:
    """Steps of 10 ms of kernels, before which a batch is copied; then the host takes a while."""

    def step(trace: GpuTrace) -> None:
        with trace.line("train.py(61): collect"), trace.phase(f"[Strategy]SingleDeviceStrategy.{phase}"):
            for _ in range(copies):
                trace.copy(us, nbytes, kind=kind)
            trace.python(after_us)
        with trace.phase("[Strategy]SingleDeviceStrategy.training_step"):
            for _ in range(kernels):
                trace.kernel(kernel_us)

    return recorded_steps(step)
