"""Faults of a host that feeds a device: what is wrong, how large it is drawn, and the twins without it."""

from dataclasses import replace
from random import Random

from lightning_gpuprof.model.clock_events import MASK
from lightning_gpuprof.model.journal import Value
from truths.gpu_runs import GpuRun, Program
from truths.gpu_steps import (
    FILLS,
    PAGEABLE_BYTES_PER_S,
    PINNED_BYTES_PER_S,
    POINTWISE,
    Step,
    Work,
    busy,
    outlasting,
    pinned,
    pointwise,
    repeated,
    update,
)


def small_kernels(random: Random, faulty: bool) -> Program:
    """The host needs longer to launch a kernel than the device to run it; the twin's kernels are longer."""
    count, us = random.randint(250, 500), random.uniform(2.0, 4.0) if faulty else random.uniform(40.0, 80.0)

    host_us = random.uniform(9.0, 14.0)

    def launch(run: GpuRun) -> None:
        pointwise(run, us, host_us=host_us)
        run.python(1.5)

    return Program(step=repeated(launch, count))


def item_in_step(random: Random, faulty: bool) -> Program:
    """The loss is read in each step, and then the host has something else to do before it launches again."""
    count, forward, backward = outlasting(random, 2560)  # 1 ms of work a layer
    read = _reading(forward, count * random.uniform(450.0, 550.0), faulty)
    return Program(step=Step(forward=read, backward=backward, update=update))


def _reading(forward: Work, other_us: float, faulty: bool) -> Work:
    """Forward, the value that is read, and what the host does then."""

    def read(run: GpuRun) -> None:
        forward(run)
        if faulty:
            with run.line("net.py(31): training_step"):
                run.item()
        run.python(other_us)

    return read


def pageable_batches(random: Random, faulty: bool) -> Program:
    """Large batches are copied from pageable memory; the twin pins them."""
    forward, backward = busy(random, size=3072)
    nbytes = random.randint(20, 40) << 20

    def upload(run: GpuRun) -> None:
        if faulty:
            run.copy(nbytes / PAGEABLE_BYTES_PER_S * 1e6, nbytes, kind="HtoD (Pageable -> Device)")
        else:
            pinned(run, nbytes // 16)

    step = Step(forward=forward, backward=backward, update=update, upload=upload)
    return Program(step=step, conditions={"loader.pin_memory": not faulty})


def large_pinned_batches(random: Random, faulty: bool) -> Program:
    """Batches are so large that the device waits for their copy, though it is from pinned memory."""
    forward, backward = busy(random, size=3072)
    nbytes = random.randint(100, 200) << 20

    def upload(run: GpuRun) -> None:
        pinned(run, nbytes if faulty else nbytes // 64)

    return Program(step=Step(forward=forward, backward=backward, update=update, upload=upload))


_PCIE: dict[str, Value] = {
    "gpu0.name": "NVIDIA A100-SXM4-40GB",
    "gpu0.pcie_generation_max": 4,
    "gpu0.pcie_width_max": 16,
    "gpu0.sm_clock_max_mhz": 1410.0,
    "gpu0.utilization_refresh_s": 0.167,
}
_BUSY = {"utilization_ratio": 0.98, "sm_clock_mhz": 1410.0, MASK: 0.0, "pcie_generation": 4.0, "pcie_width": 16.0}
"""What the driver says of a busy GPU in a fast slot."""


def slow_pinned_copies(random: Random, faulty: bool) -> Program:
    """Batches in memory of the other socket reach a part of the link's rate; the twin's are in the GPU's own."""
    forward, backward = busy(random)
    nbytes, bytes_per_s = random.randint(40, 60) << 20, random.uniform(4e9, 7e9) if faulty else PINNED_BYTES_PER_S

    def upload(run: GpuRun) -> None:
        pinned(run, nbytes, bytes_per_s)

    step = Step(forward=forward, backward=backward, update=update, upload=upload)
    return Program(step=step, conditions=_PCIE, driver=_BUSY)


def launches_far_ahead(random: Random, faulty: bool) -> Program:
    """The host queues more kernels than CUDA takes; the twin's waits for the loss before it is as far."""
    count, us = random.randint(250, 300), random.uniform(40.0, 80.0)

    def launch(run: GpuRun) -> None:
        pointwise(run, us)

    step = repeated(launch, count)

    def read(run: GpuRun) -> None:
        if not faulty:
            run.item()
        step.forward(run)

    return Program(step=replace(step, forward=read))


def slow_fetches(random: Random, faulty: bool) -> Program:
    """Batches come later than the device could take them; the twin's are ready."""
    forward, backward = busy(random, size=2048)  # 5 to 9 ms of work
    wait_us = random.uniform(12_000.0, 24_000.0) if faulty else 60.0
    return Program(step=Step(forward=forward, backward=backward, update=update, fetch=lambda run: run.python(wait_us)))


def fetches_behind_the_device(random: Random, faulty: bool) -> Program:
    """As long fetches, while the device still has work: they cost nothing."""
    forward, backward = busy(random, size=4096)  # 40 to 70 ms of work
    wait_us = random.uniform(12_000.0, 24_000.0)
    return Program(step=Step(forward=forward, backward=backward, update=update, fetch=lambda run: run.python(wait_us)))


def value_read_after_a_hidden_fetch(random: Random, faulty: bool) -> Program:
    """A fetch beside a working device, and a value that is read: the idle time is not the fetch's."""
    count, forward, backward = outlasting(random, 3072)  # 1.7 ms of work a layer
    wait_us, other_us = count * random.uniform(250.0, 350.0), count * random.uniform(550.0, 700.0)
    read = _reading(forward, other_us, faulty)
    step = Step(forward=read, backward=backward, update=update, fetch=lambda run: run.python(wait_us))
    return Program(step=step)


def item_and_launch_at_once(random: Random, faulty: bool) -> Program:
    """The loss is read in each step, but long kernels are launched right after it: it costs next to nothing."""
    forward, backward = busy(random)

    def read(run: GpuRun) -> None:
        forward(run)
        with run.line("net.py(31): training_step"):
            run.item()

    return Program(step=Step(forward=read, backward=backward, update=update))


def progress_bar(random: Random, faulty: bool) -> Program:
    """A progress bar shows a tensor in each step, and drawing it takes a while."""
    forward, backward = busy(random, size=2048)
    drawing_us = random.uniform(700.0, 2000.0)

    def draw(run: GpuRun) -> None:
        if faulty:
            run.item()
        run.python(drawing_us)

    return Program(step=Step(forward=forward, backward=backward, update=update, after=draw))


def tensors_of_the_host(random: Random, faulty: bool) -> Program:
    """Masks are made on the host in each layer; the twin makes them on the device."""
    layer_count, forward, backward = outlasting(random, 2560)  # 1 ms of work a layer
    count = random.randint(8, 16)
    python_us = layer_count * random.uniform(450.0, 550.0) / count

    def make(run: GpuRun) -> None:
        for _ in range(count):
            run.python(python_us)
            if faulty:
                with run.line("net.py(44): mask"):
                    run.copy(3.0, 4096, kind="HtoD (Pageable -> Device)")
            else:
                pointwise(run, 3.0)
        forward(run)

    return Program(step=Step(forward=make, backward=backward, update=update))


def python_between_launches(random: Random, faulty: bool) -> Program:
    """A loop in Python decides in the middle of the forward pass what comes next."""
    forward, backward = busy(random, size=2048)
    loop_us = random.uniform(8_000.0, 14_000.0)

    def loop(run: GpuRun) -> None:
        forward(run)
        with run.line("loss.py(31): match"):
            run.python(loop_us if faulty else loop_us / 40)

    return Program(step=Step(forward=loop, backward=backward, update=update))


def python_before_each_launch(random: Random, faulty: bool) -> Program:
    """A model of many modules: the interpreter takes longer than the operators. The twin's kernels outlast both."""
    count, us = random.randint(100, 200), random.uniform(4.0, 8.0) if faulty else random.uniform(150.0, 200.0)
    python_us = random.uniform(40.0, 80.0)

    def launch(run: GpuRun) -> None:
        run.python(python_us)
        pointwise(run, us)

    return Program(step=repeated(launch, count))


def outputs_copied_back(random: Random, faulty: bool) -> Program:
    """All outputs go back to the host in each step; the twin keeps them."""
    forward, backward = busy(random, size=2048)
    nbytes = random.randint(24, 64) << 20

    def keep(run: GpuRun) -> None:
        backward(run)
        if faulty:
            with run.line("net.py(52): training_step"):
                run.copy(nbytes / PAGEABLE_BYTES_PER_S * 1e6, nbytes, kind="DtoH (Device -> Pageable)")

    return Program(step=Step(forward=forward, backward=keep, update=update))


def slow_launches(random: Random, faulty: bool) -> Program:
    """Each launch takes several times as long as it should; the twin's do not."""
    count, us = random.randint(150, 250), random.uniform(15.0, 25.0)
    call_us = random.uniform(35.0, 60.0) if faulty else 5.0

    def launch(run: GpuRun) -> None:
        run.kernel(us, host_us=call_us + 5.0, call_us=call_us, op="aten::add", name=POINTWISE, geometry=FILLS)

    return Program(step=repeated(launch, count))


def scaled_gradients(random: Random, faulty: bool) -> Program:
    """The gradient scaler asks in each step whether a gradient overflowed; the twin has bf16, and none."""
    count, forward, backward = outlasting(random, 2560)  # 1 ms of work a layer
    other_us = count * random.uniform(450.0, 550.0)

    def scaled(run: GpuRun) -> None:
        if faulty:
            run.item()
        run.python(other_us)
        update(run)

    return Program(
        step=Step(forward=forward, backward=backward, update=scaled),
        conditions={"trainer.precision": "16-mixed" if faulty else "bf16-mixed"},
    )


def many_small_copies(random: Random, faulty: bool) -> Program:
    """A batch of many small tensors, each copied by itself; the twin's is one tensor."""
    forward, backward = busy(random, size=2048)
    count, nbytes = random.randint(60, 120), random.randint(1, 8) << 10

    def upload(run: GpuRun) -> None:
        for _ in range(count if faulty else 1):
            run.copy(2.0, nbytes if faulty else count * nbytes, kind="HtoD (Pageable -> Device)")

    return Program(step=Step(forward=forward, backward=backward, update=update, upload=upload))
