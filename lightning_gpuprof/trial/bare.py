"""Times a model or a function without a Trainer: how long a call takes, and which of two is faster."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import torch

from lightning_gpuprof.analyze.statistics import distribution
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.config import check_int
from lightning_gpuprof.model.numbers import seconds
from lightning_gpuprof.model.report import Distribution
from lightning_gpuprof.model.trial import BASE, Block, Outcome
from lightning_gpuprof.trial.judging import mean_step_ms, paired

_OTHER = "b"
_ROUNDS = 20
_LEAST_ROUNDS = 5
_SEED = 0


class Latency(msgspec.Struct, kw_only=True, frozen=True):
    """How long a call takes, in milliseconds."""

    calls: int
    host_ms: Distribution
    """From the call until the device has done all of it."""
    device_ms: Distribution | None
    """From the first to the last work on the GPU, of several the one that takes longest; None on other devices."""

    def __str__(self) -> str:
        rows = [("call", self.host_ms), *([("on the GPU", self.device_ms)] if self.device_ms else [])]
        lines = [
            f"{name}: median {_ms(one.median)}, p95 {_ms(one.p95)}, p99 {_ms(one.p99)}, min {_ms(one.min)}, "
            f"max {_ms(one.max)}"
            for name, one in rows
        ]
        return "\n".join([*lines, f"{self.calls} calls, {1e3 / self.host_ms.mean:,.0f} a second"])


class Comparison(msgspec.Struct, kw_only=True, frozen=True):
    """The second of two functions against the first."""

    outcome: Outcome
    """Of the second one: ``faster``, ``slower``, ``no gain``, or ``undecided``: give it more seconds."""
    speedup: float
    """Of the second one, over rounds in which both were called."""
    lower: float
    """Of the 90 % interval of the speed-up."""
    upper: float
    a_ms: float
    """Mean of a call."""
    b_ms: float

    def __str__(self) -> str:
        said = "brings no gain" if self.outcome == "no gain" else f"is {self.outcome}"
        return (
            f"b {said}: {self.speedup:.3g}x (90 % interval {self.lower:.3g} to {self.upper:.3g}), "
            f"{_ms(self.a_ms)} → {_ms(self.b_ms)} a call"
        )


def measure_latency(
    model: Callable[..., Any], inputs: Any, *, calls: int = 200, warmup: int = 10, grad: bool = False
) -> Latency:
    """Time single calls of a model, one after the other, each until the device is done.

    Args:
        model: A module or function; a module stays in the mode (``eval`` or ``train``) that it is in.
        inputs: What it is called with: a tuple is its arguments, a dictionary its named ones, all else the only one.
        calls: Calls that are timed.
        warmup: Calls before them that are not.
        grad: Whether gradients are recorded; else it runs in ``torch.inference_mode``.

    Returns:
        Percentiles of the calls.

    Raises:
        ArgumentError: A number of calls is too small.
    """
    check_int("calls", calls, 1)
    check_int("warmup", warmup, 0)
    call = _bound(model, inputs)
    host_ms: list[float] = []
    marks: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = []
    with contextlib.nullcontext() if grad else torch.inference_mode():
        for _ in range(warmup):
            call()
        _wait()
        for _ in range(calls):
            begin = time.perf_counter()
            with _between(marks):
                call()
            _wait()
            host_ms.append(1e3 * (time.perf_counter() - begin))
    of_calls = distribution(np.array(host_ms))
    assert of_calls is not None
    device_ms = [max(first.elapsed_time(last) for first, last in of_call) for of_call in marks]
    return Latency(calls=calls, host_ms=of_calls, device_ms=distribution(np.array(device_ms)))


def ab(a: Callable[[], Any], b: Callable[[], Any], *, seconds: float = 10.0) -> Comparison:
    """Compare two functions without arguments, called in turn in this process: a drift of the machine hits both.

    Args:
        a: The one as it is.
        b: The other one.
        seconds: For all calls together, about; both are warmed up before.

    Returns:
        The speed-up of ``b`` with its interval.

    Raises:
        ArgumentError: ``seconds`` is not above 0.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ArgumentError("seconds", seconds, "be a number above 0")
    functions = {BASE: a, _OTHER: b}
    once_s = {arm: min(_timed(function, 1) for _ in range(3)) for arm, function in functions.items()}
    calls = {arm: max(1, round(seconds / _ROUNDS / 2 / max(each_s, 1e-9))) for arm, each_s in once_s.items()}
    blocks: list[Block] = []
    order = random.Random(_SEED)
    end = time.perf_counter() + seconds
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() > end:
            break
        for arm in order.sample([BASE, _OTHER], 2):
            took_s = _timed(functions[arm], calls[arm])
            blocks.append(Block(arm=arm, round=number, steps=calls[arm], seconds=took_s))
    found = paired(blocks, _OTHER)
    assert found is not None
    return Comparison(
        outcome=found.outcome,
        speedup=found.speedup,
        lower=found.lower,
        upper=found.upper,
        a_ms=mean_step_ms(blocks, BASE) or 0.0,
        b_ms=mean_step_ms(blocks, _OTHER) or 0.0,
    )


def _bound(model: Callable[..., Any], inputs: Any) -> Callable[[], Any]:
    if isinstance(inputs, tuple):
        return lambda: model(*inputs)
    if isinstance(inputs, dict):
        return lambda: model(**inputs)
    return lambda: model(inputs)


def _timed(function: Callable[[], Any], calls: int) -> float:
    """Seconds of so many calls, from device idle to device idle."""
    _wait()
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    _wait()
    return time.perf_counter() - begin


def _gpus() -> list[int]:
    """CUDA devices on which this process has memory: waiting for another one would begin to use it."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    return [device for device in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(device)]


def _wait() -> None:
    for device in _gpus():
        torch.cuda.synchronize(device)
    for other in (torch.xpu, torch.mps):
        if other.is_available():
            other.synchronize()


@contextlib.contextmanager
def _between(calls: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]]) -> Iterator[None]:
    """Mark on the current stream of each GPU where the call begins and ends."""
    gpus, marks = _gpus(), []
    for device in gpus:
        with torch.cuda.device(device):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            first.record()
            marks.append((first, last))
    yield
    for device, (_, last) in zip(gpus, marks, strict=True):
        with torch.cuda.device(device):
            last.record()
    if marks:
        calls.append(marks)


def _ms(value: float) -> str:
    return seconds(value / 1e3)
