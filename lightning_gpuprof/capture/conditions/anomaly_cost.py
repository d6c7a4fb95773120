"""What anomaly detection costs, measured where it is on: time and number of the stacks and checks of a step."""

import math
import time
from collections.abc import Callable
from itertools import islice
from statistics import mean, median
from typing import Any

import torch

from lightning_gpuprof.model.journal import Value

_REPEATS = 5
_MAX_NODES = 100_000
_SAMPLED_NODES = 20
_EVICTED_BYTES = 16 << 20
"""Copied before a stack: an operation on large tensors leaves the caches as empty. Measured: 3 to 6 times as slow."""


def anomaly_cost(loss: torch.Tensor) -> dict[str, Value]:
    """Nodes of the graph behind a loss, each of which has recorded its stack; how long one takes at least and at most.

    Stacks are timed here, where the call stack runs through the same files, and scaled to as many frames as the
    recorded ones have. Nodes beyond the first 100,000 are not counted. ``backward`` checks each gradient between two
    nodes for NaN; on a CPU such a check is timed, too, with as many elements as these have in the mean.

    Returns:
        Conditions by name; empty where anomaly detection is off.
    """
    if not torch.is_anomaly_enabled() or loss.grad_fn is None:
        return {}
    from torch.fx import traceback  # what torch calls for each node; with anomaly detection it is loaded

    seen = {loss.grad_fn}
    left = [loss.grad_fn]
    checked: list[int] = []
    while left and len(seen) < _MAX_NODES:
        for node, number in left.pop().next_functions:
            if node is None:
                continue
            checked.append(_elements(node, number))
            if node not in seen:
                seen.add(node)
                left.append(node)
    # A property, which torch's annotations call a method.
    metadata: list[Any] = [node.metadata for node in islice(seen, _SAMPLED_NODES)]
    recorded = [len(found["traceback_"]) for found in metadata if "traceback_" in found]
    if not recorded:
        return {}
    scale = mean(recorded) / max(1, len(traceback.format_stack()))
    found: dict[str, Value] = {
        "flags.anomaly_nodes": len(seen),
        "flags.anomaly_stack_us": scale * _median_us(traceback.format_stack, evicted=0),
        "flags.anomaly_stack_most_us": scale * _median_us(traceback.format_stack, evicted=_EVICTED_BYTES),
    }
    if loss.device.type != "cpu" or not checked or not torch.is_anomaly_check_nan_enabled():
        return found  # on a device a check waits for it, as the training thread must not do here
    gradient = loss.new_zeros(round(mean(checked)), requires_grad=False)

    def check() -> object:
        return gradient.ne(gradient).any().item()

    return found | {
        "flags.anomaly_checks": len(checked),
        "flags.anomaly_check_us": _median_us(check, evicted=0),
        "flags.anomaly_check_most_us": _median_us(check, evicted=_EVICTED_BYTES),
    }


def _elements(node: Any, number: int) -> int:
    """Of one gradient that a node takes; 0 where torch does not say."""
    taken = getattr(node, "_input_metadata", ())
    return math.prod(taken[number].shape) if number < len(taken) else 0


def _median_us(do: Callable[[], object], evicted: int) -> float:
    """Median time of what a step does once more, each after so many bytes were copied."""
    other, times_us = bytearray(evicted), []
    for _ in range(_REPEATS):
        bytes(other)
        begin_ns = time.perf_counter_ns()
        do()
        times_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
    return median(times_us)
