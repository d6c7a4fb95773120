"""Faults inside the step: waits, work in forward, backward and the optimizer, memory, compilation, other processes."""

import contextlib
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric

from truths.costs import Cost, burn
from truths.models import Classifier, Perceptron
from truths.setup import Setup, fault


def _cost(setup: Setup, ms: float, *, burns: bool = False, every: int = 1) -> Cost:
    cost = setup.costs["step"] = Cost(ms=ms, burns=burns, every=every)
    return cost


@fault
def sleep_in_forward(setup: Setup, ms: float, *, every: int = 1) -> None:
    """``training_step`` sleeps."""
    setup.model.in_forward.append(_cost(setup, ms, every=every).take)


@fault
def sleep_by_chance(setup: Setup, ms: float, *, seed: int) -> None:
    """``training_step`` sleeps for times between nothing and twice as long, drawn with the run's seed and this one."""
    draw = Random(f"{torch.initial_seed()} {seed}")
    setup.model.in_forward.append(lambda: time.sleep(draw.uniform(0.0, 2 * ms) / 1e3))


@fault
def burn_in_forward(setup: Setup, ms: float) -> None:
    """``training_step`` computes in Python."""
    setup.model.in_forward.append(_cost(setup, ms, burns=True).take)


@fault
def optimized_by_hand(setup: Setup, every: int, *, width: int = 1500, blocks: bool = False) -> None:
    """Manual optimization of a wide model, with a step in each so many small batches.

    Args:
        setup: The fit.
        every: Batches.
        width: Of the model: its gradients take longer than its few samples.
        blocks: Ranks exchange gradients before a step only.
    """

    class ByHand(Classifier):
        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            steps = (batch_idx + 1) % every == 0
            strategy: Any = self.trainer.strategy
            with strategy.block_backward_sync() if blocks and not steps else contextlib.nullcontext():
                loss = super().training_step(batch, batch_idx)
                self.manual_backward(loss / every)
            if steps:
                optimizer: Any = self.optimizers()
                optimizer.step()
                optimizer.zero_grad()
            return loss

    setup.model = ByHand(Perceptron(width))
    setup.model.automatic_optimization = False
    setup.batch_size, setup.items.size = 4, 4 * setup.steps
    setup.trainer["max_steps"] = setup.steps // every


@fault
def metric_in_forward(setup: Setup, count: int, *, only_updates: bool = False) -> None:
    """``training_step`` calls a metric of its own, which sorts so many numbers, or only updates it."""
    metric = setup.model.metric = _Largest()
    values = torch.rand(count)
    setup.model.in_forward.append(lambda: (metric.update if only_updates else metric)(values))


class _Largest(Metric):
    """Has ``full_state_update`` as a metric of one's own does if one does not think of it: each call updates twice."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")

    def update(self, values: Tensor) -> None:
        self.total += values.sort().values[-1]

    def compute(self) -> Tensor:
        return self.total


@fault
def overridden_zero_grad(setup: Setup, width: int, *, zeros: bool) -> None:
    """Wide layers, two samples a step, and a module that clears the gradients itself: to zeros, or as torch does."""
    setup.model.network = Perceptron(width)
    setup.batch_size = 2

    class Clearing(type(setup.model)):  # type: ignore[misc]
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
            optimizer.zero_grad(set_to_none=not zeros)

    setup.model.__class__ = Clearing


@fault
def sleep_in_backward(setup: Setup, ms: float) -> None:
    """A hook of the gradient sleeps."""
    setup.model.in_backward.append(_cost(setup, ms).take)


@fault
def sleep_in_optimizer(setup: Setup, ms: float) -> None:
    """The optimizer sleeps before its update."""
    cost = _cost(setup, ms)

    def make(parameters: Any, **settings: Any) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, **settings)
        optimizer.register_step_pre_hook(lambda *_: cost.take())
        return optimizer

    setup.model.optimizer = make


class _Functional(Classifier):
    """Computes with plain functions and tensors instead of modules."""

    cost: Cost
    first: nn.Parameter
    second: nn.Parameter

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        samples, labels = batch
        self.cost.take()
        hidden = functional.relu(samples @ self.first)
        return functional.cross_entropy(hidden @ self.second, labels)


@fault
def functional_with_sleep(setup: Setup, ms: float) -> None:
    """``training_step`` uses functional operators only, and sleeps."""
    setup.model.__class__ = _Functional
    setup.model.network = nn.Identity()
    setup.model.first = nn.Parameter(torch.randn(64, 256) / 8)
    setup.model.second = nn.Parameter(torch.randn(256, 10) / 16)
    setup.model.cost = _cost(setup, ms)  # type: ignore[assignment]


def _beside(setup: Setup, work: Callable[[], None], over: threading.Event, *, name: str | None = None) -> None:
    """A thread of the program, which goes on until the event."""

    @contextlib.contextmanager
    def beside() -> Iterator[None]:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    setup.beside.append(beside)


@fault
def held_lock(setup: Setup, ms: float) -> None:
    """``training_step`` needs a lock that another thread holds half of the time."""
    lock = threading.Lock()
    over = threading.Event()

    def hold() -> None:
        while not over.is_set():
            with lock:
                time.sleep(ms / 1e3)
            time.sleep(1e-3)

    def need() -> None:
        with lock:
            pass

    _beside(setup, hold, over)
    setup.model.in_forward.append(need)


@fault
def busy_thread(setup: Setup, *, rests: bool = False) -> None:
    """Another thread of the program counts in Python, or rests nearly all the time."""
    over = threading.Event()

    def count() -> None:
        number = 0
        while not over.wait(0.1 if rests else 0.0):
            for step in range(10_000):
                number += step

    _beside(setup, count, over, name="metrics")


@fault
def burn_in_network(setup: Setup, ms: float) -> None:
    """``forward`` of the network computes in Python."""
    cost = _cost(setup, ms, burns=True)
    setup.model.network.register_forward_pre_hook(lambda *_: cost.take())


@fault
def reads_a_pipe(setup: Setup, ms: float) -> None:
    """``training_step`` waits for a process that answers late."""
    program = f"import sys, time\nfor line in sys.stdin:\n    time.sleep({ms / 1e3})\n    print(flush=True)"
    server: list[subprocess.Popen[str]] = []

    @contextlib.contextmanager
    def beside() -> Iterator[None]:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            server.append(process)
            try:
                yield
            finally:
                process.kill()

    def ask() -> None:
        question, answer = server[0].stdin, server[0].stdout
        question.write("\n")
        question.flush()
        answer.readline()

    setup.beside.append(beside)
    setup.model.in_forward.append(ask)


@fault
def many_parameters(setup: Setup, number: int, numbers_each: int = 16) -> None:
    """So many parameters that the optimizer has to visit, one by one."""
    many = nn.ParameterList(nn.Parameter(torch.zeros(numbers_each)) for _ in range(number))

    class Zeroing(type(setup.model)):  # type: ignore[misc]
        def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
            optimizer.zero_grad(set_to_none=False)
            for parameter in many:  # Lightning drops gradients that are there before the first step
                if parameter.grad is None:
                    parameter.grad = torch.zeros(numbers_each)

    setup.model.many = many
    setup.model.__class__ = Zeroing
    setup.model.optimizer = _loop_adam


def _loop_adam(parameters: Any, **settings: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, foreach=False, **settings)


@fault
def garbage(setup: Setup, cycles: int) -> None:
    """Every step leaves cycles of objects behind, beside a heap that makes each collection slow."""
    gc.freeze()  # only what follows is looked through, not all modules that were imported
    heap = [[{"value": [index]}] for index in range(30_000)]

    def litter() -> None:
        for _ in range(cycles):
            one: list[Any] = [heap]
            one.append(one)
        gc.collect()

    setup.model.in_forward.append(litter)


@fault
def leak(setup: Setup, megabytes: float) -> None:
    """Every step keeps so much memory."""
    kept: list[Tensor] = []
    setup.model.in_forward.append(lambda: kept.append(torch.ones(int(megabytes * 1024 * 256))))


@fault
def growing_work(setup: Setup, ms_per_step: float) -> None:
    """Every step computes a little longer than the one before."""
    calls = [0]

    def work() -> None:
        calls[0] += 1
        burn(ms_per_step * calls[0])

    setup.model.in_forward.append(work)


@fault
def slow_start(setup: Setup, ms: float, *, steps: int) -> None:
    """The first steps take long."""
    cost = Cost(ms=ms)
    setup.model.in_forward.append(lambda: cost.take() if cost.calls < steps else None)


@fault
def changing_forward(setup: Setup, before_ms: float, after_ms: float, *, at: float = 0.5) -> None:
    """``training_step`` sleeps for one time in the first part of the run and another in the rest."""
    early, late = Cost(ms=before_ms), Cost(ms=after_ms)
    change = int(setup.steps * at)

    def happens() -> None:
        (early if early.calls < change else late).take()

    setup.model.in_forward.append(happens)


@fault
def compiled(setup: Setup, *, backend: str = "eager", dynamic: bool | None = None, prints: bool = False) -> None:
    """The network is compiled; with ``prints`` it has what no compiler takes."""
    network = _Chatty(setup.model.network) if prints else setup.model.network
    setup.model.network = torch.compile(network, backend=backend, dynamic=dynamic)  # type: ignore[assignment]


class _Chatty(nn.Module):
    """Looks at values between two halves."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Tensor) -> Tensor:
        if batch.abs().sum().item() < 0:
            batch = batch + 1
        torch._dynamo.graph_break()
        hidden: Tensor = self.network(batch)
        torch._dynamo.graph_break()
        return hidden * 1.0


@fault
def other_processes(setup: Setup, number: int) -> None:
    """So many processes beside the training that compute all the time."""

    @contextlib.contextmanager
    def beside() -> Iterator[None]:
        program = "while True: sum(range(1000))"
        processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(number)]
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()

    setup.beside.append(beside)


@fault
def clipped(setup: Setup, times: int) -> None:
    """Clipping that computes the norm over and over."""

    class Clipping(type(setup.model)):  # type: ignore[misc]
        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
            for _ in range(times):
                nn.utils.clip_grad_norm_(self.parameters(), 10.0, foreach=False)

    setup.model.__class__ = Clipping


@fault
def each(setup: Setup, *faults: Callable[[Setup], None]) -> None:
    """Several things as one."""
    for one in faults:
        one(setup)
