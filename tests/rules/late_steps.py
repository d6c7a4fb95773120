"""Steps of a GPU training that differ in what holds the device up."""

from __future__ import annotations

from gpu_trace import GpuTrace

STRATEGY = "[Strategy]SingleDeviceStrategy"


def training(
    trace: GpuTrace,
    *,
    kernels: int = 300,
    kernel_us: float = 100.0,
    op_us: float = 12.0,
    python_us: float = 3.0,
    fetch_us: float = 50.0,
    other_us: float = 0.0,
    item: bool = False,
    after_step_us: float = 0.0,
) -> None:
    """A fetch, a forward with some other work on the host, a backward and an optimizer; healthy by default."""
    fetch = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    with trace.phase("[_TrainingEpochLoop].train_dataloader_next"), trace.range(fetch):
        trace.python(fetch_us)
    with trace.phase("[LightningModule]Net.optimizer_step"):
        with trace.phase(f"{STRATEGY}.training_step"), trace.line("net.py(20): forward"):
            for index in range(kernels // 3):
                trace.kernel(kernel_us, host_us=op_us)
                trace.python(python_us)
                if other_us and index == kernels // 6:
                    with trace.line("loss.py(31): match"):
                        trace.python(other_us)
            if item:
                trace.item()
        with trace.phase(f"{STRATEGY}.backward"):
            for _ in range(kernels // 3):
                trace.kernel(kernel_us, host_us=op_us)
                trace.python(python_us)
        for _ in range(kernels - 2 * (kernels // 3)):
            trace.kernel(kernel_us, host_us=op_us, op="aten::_foreach_add_")
            trace.python(python_us)
    trace.python(after_step_us)
