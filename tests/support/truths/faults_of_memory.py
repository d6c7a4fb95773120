"""Faults of a device's memory: a model of torch's allocator, what is wrong with it, and the twins without it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from lightning_gpuprof.model.memory import MemoryPhase
from truths.gpu_runs import GpuRun, Program, Readings
from truths.gpu_steps import Step, busy, pointwise, repeated, update

TOTAL_BYTES = 42_298_834_944
"""Of an A100 with 40 GB."""


@dataclass(frozen=True, kw_only=True)
class Allocator:
    """What is allocated when; sizes as shares of the device's memory, calls per step.

    Attributes:
        parameters: Gradients are as large.
        states: Of the optimizer.
        activations: At the end of forward.
        in_backward: What backward needs besides at its peak.
        in_optimizer: What the optimizer needs besides at its peak.
        pieces: Free pieces between what is allocated.
        leak: More in each step.
        live: Whether gradients are still there in forward.
        allocs: Calls of cudaMalloc.
        frees: Calls of cudaFree.
        retries: Allocations that were tried again.
    """

    parameters: float = 0.05
    states: float = 0.1
    activations: float = 0.2
    in_backward: float = 0.05
    in_optimizer: float = 0.0
    pieces: float = 0.01
    leak: float = 0.0
    live: bool = False
    allocs: float = 0.0
    frees: float = 0.0
    retries: float = 0.0

    def readings(self, steps: int) -> Readings:
        """What is read at the ends of phases of a step, by the number of steps so far."""
        kept = self.parameters + self.states + self.leak * steps
        gradients = self.parameters
        at_end: dict[MemoryPhase, float] = {
            "h2d": kept + gradients * self.live,
            "forward": kept + self.activations + gradients * self.live,
            "backward": kept + gradients,
            "optimizer": kept + gradients,
        }
        within: dict[MemoryPhase, float] = {
            "h2d": at_end["h2d"],
            "forward": at_end["forward"],
            "backward": kept + self.activations + gradients * self.live + self.in_backward,
            "optimizer": kept + gradients + self.in_optimizer,
        }
        peak = max(within.values()) if steps > 1 else 0.0
        found: Readings = {}
        for phase, allocated in at_end.items():
            peak = max(peak, within[phase])
            reserved = max(peak, allocated) + self.pieces
            values: dict[str, float | None] = {
                "allocated_bytes": allocated * TOTAL_BYTES,
                "allocated_peak_bytes": peak * TOTAL_BYTES,
                "reserved_bytes": reserved * TOTAL_BYTES,
                "reserved_peak_bytes": reserved * TOTAL_BYTES,
                "active_bytes": allocated * TOTAL_BYTES,
                "inactive_split_bytes": self.pieces * TOTAL_BYTES,
                "retries_count": self.retries * steps,
                "ooms_count": 0.0,
                "device_allocs_count": 40.0 + self.allocs * steps,
                "device_frees_count": self.frees * steps,
            }
            if phase == "forward":
                values["gradients_live_count"] = 10.0 * self.live
            found[f"gpu0 {phase}"] = values
        return found

    @property
    def held(self) -> Readings:
        """What model and optimizer hold."""
        sizes = {
            "parameters_bytes": self.parameters,
            "buffers_bytes": 0.0,
            "gradients_bytes": self.parameters,
            "optimizer_state_bytes": self.states,
        }
        return {"held cuda:0 float32": {name: size * TOTAL_BYTES for name, size in sizes.items()}}


def _program(allocator: Allocator, step: Step) -> Program:
    return Program(
        step=step,
        samples=allocator.readings,
        held=allocator.held,
        conditions={
            "memory.gpu0.total_bytes": TOTAL_BYTES,
            "model.optimizer": "AdamW",
            "model.automatic_optimization": True,
            "trainer.accumulate_grad_batches": 1,
        },
    )


def _while_busy(allocator: Callable[[Random, bool], Allocator]) -> Callable[[Random, bool], Program]:
    """A program whose device is busy, with an allocator that is drawn."""

    def program(random: Random, faulty: bool) -> Program:
        forward, backward = busy(random)
        return _program(allocator(random, faulty), Step(forward=forward, backward=backward, update=update))

    return program


def _with_calls(allocator: Callable[[Random, float], Allocator], *names: str) -> Callable[[Random, bool], Program]:
    """Likewise; if it is faulty, each step calls the driver several times, and the device then has nothing to do.

    Args:
        allocator: What it does, by the calls per step of each name.
        names: Of the calls, in turn.
    """

    def program(random: Random, faulty: bool) -> Program:
        forward, backward = busy(random, size=2048)
        calls, us = random.randint(5, 8) * 2, random.uniform(1000.0, 1500.0)

        def take(run: GpuRun) -> None:
            for number in range(calls if faulty else 0):
                run.malloc(us, name=names[number % len(names)])
                pointwise(run, 10.0)
            forward(run)

        step = Step(forward=take, backward=backward, update=update)
        return _program(allocator(random, calls / len(names) * faulty), step)

    return program


def _taken(random: Random, calls: float) -> Allocator:
    return Allocator(allocs=calls)


def _given_back(random: Random, calls: float) -> Allocator:
    return Allocator(allocs=calls, frees=calls)


def _retried(random: Random, calls: float) -> Allocator:
    return Allocator(activations=0.65 if calls else 0.3, allocs=calls, frees=calls, retries=calls / 10)


def _nearly_full(random: Random, faulty: bool) -> Allocator:
    return Allocator(parameters=0.1, states=0.2, activations=random.uniform(0.62, 0.64) if faulty else 0.3)


def _in_pieces(random: Random, faulty: bool) -> Allocator:
    return Allocator(activations=0.4, pieces=random.uniform(0.25, 0.35) if faulty else 0.02)


def _leaking(random: Random, faulty: bool) -> Allocator:
    return Allocator(leak=random.uniform(0.0005, 0.002) * faulty)


def _activations(random: Random, faulty: bool) -> Allocator:
    return Allocator(activations=random.uniform(0.6, 0.7) if faulty else 0.25)


def _states(random: Random, faulty: bool) -> Allocator:
    size = random.uniform(0.19, 0.215)
    return Allocator(parameters=size if faulty else 0.1, states=2 * size if faulty else 0.2, activations=0.2)


def _temporary(random: Random, faulty: bool) -> Allocator:
    size = random.uniform(0.15, 0.25)
    return Allocator(parameters=0.15, states=0.3, activations=0.15, in_optimizer=0.05 + size if faulty else 0.0)


def _gradients(random: Random, faulty: bool) -> Allocator:
    size = random.uniform(0.15, 0.2)
    return Allocator(parameters=size, states=0.1, activations=0.4, in_backward=0.0, live=faulty)


memory_taken_in_steps = _with_calls(_taken, "cudaMalloc")
memory_given_back_in_steps = _with_calls(_given_back, "cudaFree", "cudaMalloc")
allocations_tried_again = _with_calls(_retried, "cudaFree", "cudaMalloc")
nearly_full_memory = _while_busy(_nearly_full)
memory_in_pieces = _while_busy(_in_pieces)
leaking_memory = _while_busy(_leaking)
large_activations = _while_busy(_activations)
large_states = _while_busy(_states)
temporary_tensors_of_the_optimizer = _while_busy(_temporary)
gradients_in_forward = _while_busy(_gradients)


def room_for_a_larger_batch(random: Random, faulty: bool) -> Program:
    """The host cannot keep up with short kernels, and most of the memory is free; otherwise half of it is used."""
    count, host_us = random.randint(250, 500), random.uniform(9.0, 14.0)
    us = random.uniform(2.0, 4.0)

    def launch(run: GpuRun) -> None:
        pointwise(run, us, host_us=host_us)
        run.python(1.5)

    return _program(Allocator(activations=0.1 if faulty else 0.4), repeated(launch, count))
