"""Steps of a GPU training that differ in what holds the device up."""

from collections.abc import Mapping
from typing import Any

from truths.gpu_trace import GpuTrace

STRATEGY = "[Strategy]SingleDeviceStrategy"
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SHAPE = [32, 197, 768]


def training(
    trace: GpuTrace,
    *,
    kernels: int = 300,
    kernel_us: float = 100.0,
    op_us: float = 12.0,
    call_us: float = 4.0,
    python_us: float = 3.0,
    fetch_us: float = 50.0,
    copy: Mapping[str, Any] | None = None,
    tensors: tuple[int, float] | None = None,
    layout: Mapping[str, Any] | None = None,
    other_us: float = 0.0,
    reads: Mapping[str, float] | None = None,
    after_step_us: float = 0.0,
    rank_check: bool = False,
    trials: int = 0,
    trial_us: float = 0.0,
    zeros: tuple[int, float] | None = None,
) -> None:
    """A fetch, a forward with some other work on the host, a backward and an optimizer; healthy by default.

    Args:
        trace: Where it is recorded.
        kernels: Of a step; two thirds of them are of forward and backward.
        kernel_us: Of each on the device.
        op_us: Of its operator on the host.
        call_us: Of its launch, a part of that.
        python_us: After it on the host.
        fetch_us: Of the batch.
        copy: Arguments of :func:`copies` before the forward pass.
        tensors: How many the model makes on the host, and how long each takes.
        layout: Kernels that copy within the device: ``us`` of each, and ``types`` of its inputs.
        other_us: The host at something else in the middle of the forward pass.
        reads: How long the host takes after it has read a value in ``training_step``, after the backward pass
            (``scaler``), in the optimizer or in a callback.
        after_step_us: The host at the end of the step.
        rank_check: Before the fetch all ranks are asked whether to stop, as Lightning does it: a tensor of the host is
            broadcast, and read.
        trials: Convolutions for which cuDNN times eight algorithms, each of which takes ``trial_us``.
        trial_us: Likewise.
        zeros: How many gradients are filled with zeros, and how long each takes.
    """
    reads = reads or {}
    if rank_check:
        trace.copy(2.0, 8, kind="HtoD (Pageable -> Device)")
        trace.collective(30.0, 8, ranks=4, name="Broadcast")
        trace.communication_done()
        trace.item()
    with trace.phase("[_TrainingEpochLoop].train_dataloader_next"), trace.range(FETCH):
        trace.python(fetch_us)
    if copy is not None:
        copies(trace, **copy)

    def launch(count: int, op: str = "aten::mul") -> None:
        inputs = None if layout is None or layout["types"] is None else ([SHAPE, SHAPE], ["float", "float"])
        for _ in range(count):
            trace.kernel(kernel_us, host_us=op_us, call_us=call_us, op=op, inputs=inputs)
            trace.python(python_us)

    def read(where: str) -> None:
        if where in reads:
            trace.item()
            trace.python(reads[where])

    third = kernels // 3
    with trace.phase("[LightningModule]Net.optimizer_step"):
        with trace.line("net.py(20): forward"), trace.phase(f"{STRATEGY}.training_step"):
            launch(kernels // 6 + 1)
            if other_us:
                with trace.line("loss.py(31): match"):
                    trace.python(other_us)
            launch(third - kernels // 6 - 1)
            for _ in range(tensors[0] if tensors is not None else 0):
                trace.copy(2.0, 4096, kind="HtoD (Pageable -> Device)")
                trace.python(tensors[1] if tensors is not None else 0.0)
                trace.kernel(kernel_us)
            for _ in range(10 if layout is not None else 0):
                copied = layout or {}
                inputs = None if copied["types"] is None else ([SHAPE, SHAPE], list(copied["types"]))
                trace.kernel(copied["us"], op="aten::copy_", name="direct_copy_kernel", inputs=inputs)
            for _ in range(trials):
                trace.trial([trial_us] * 8)
            read("training_step")
        if zeros is not None:
            with (
                trace.phase("[LightningModule]Net.optimizer_zero_grad"),
                trace.range("Optimizer.zero_grad#AdamW.zero_grad"),
            ):
                for _ in range(zeros[0]):
                    trace.kernel(zeros[1], op="aten::zero_")
        with trace.phase(f"{STRATEGY}.backward"):
            launch(third)
        read("scaler")
        with trace.range("Optimizer.step#AdamW.step"):
            read("optimizer")
            launch(kernels - 2 * third, "aten::_foreach_add_")
    for name in reads:
        if name not in ("training_step", "scaler", "optimizer"):
            with trace.line("train.py(82): main"), trace.phase(f"[Callback]{name}.on_train_batch_end"):
                read(name)
    trace.python(after_step_us)


def copies(
    trace: GpuTrace,
    *,
    kind: str,
    us: float,
    nbytes: int,
    count: int = 1,
    after_us: float = 0.0,
    op: str = "aten::to",
    phase: str = "batch_to_device",
) -> None:
    """Copies between host and device, and what the host does after them."""
    with trace.line("train.py(61): collect"), trace.phase(f"{STRATEGY}.{phase}"):
        for _ in range(count):
            trace.copy(us, nbytes, kind=kind, op=op)
        trace.python(after_us)
