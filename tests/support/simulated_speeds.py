"""Step times of runs whose noise is known, for what a comparison says of two of them."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Speeds = Callable[[int, np.random.Generator], Floats]
"""Step times, ms, of a run of so many steps."""


def steady(count: int, rng: np.random.Generator) -> Floats:
    """Independent steps of 20 ms, 5 % scatter."""
    return np.asarray(20 * np.exp(0.05 * rng.standard_normal(count)), np.float64)


def remembering(memory: float) -> Speeds:
    """Steps that scatter by 5 % and keep ``memory`` of the deviation of the step before."""

    def speeds(count: int, rng: np.random.Generator) -> Floats:
        return 20 * (1 + 0.05 * _wandering(count, memory, rng))

    return speeds


def outlasting(runs: float) -> Speeds:
    """Steps whose speed wanders by 5 % and forgets over so many runs, with 1 % of independent scatter."""

    def speeds(count: int, rng: np.random.Generator) -> Floats:
        memory = (runs * count - 1) / (runs * count + 1)
        noise = 0.05 * _wandering(count, memory, rng) + 0.01 * rng.standard_normal(count)
        return np.asarray(20 * np.exp(noise), np.float64)

    return speeds


def drifting(count: int, rng: np.random.Generator) -> Floats:
    """Steps that become up to a fifth longer or shorter in the course of the run."""
    slope = np.exp(rng.uniform(-0.2, 0.2) * np.linspace(0, 1, count))
    return np.asarray(remembering(0.98)(count, rng) * slope, np.float64)


def switching(runs: float) -> Speeds:
    """Steps of two speeds, 1 to 1.35, each of which lasts so many runs on average."""

    def speeds(count: int, rng: np.random.Generator) -> Floats:
        slow = np.cumsum(rng.random(count) < 1 / (runs * count)) % 2 == rng.integers(2)
        return np.asarray(remembering(0.9)(count, rng) * np.where(slow, 1.35, 1.0), np.float64)

    return speeds


def demo(count: int, rng: np.random.Generator) -> Floats:
    """As the demo's first run on a shared machine: from 149 to 200 ms somewhere in the middle."""
    level = np.where(np.arange(count) < rng.uniform(0.2, 0.8) * count, 149, 200)
    return np.asarray(level * rng.lognormal(0, 0.05, count), np.float64)


def demo_fixed(count: int, rng: np.random.Generator) -> Floats:
    """As the demo's second run."""
    return np.asarray(103 * rng.lognormal(0, 0.05, count), np.float64)


EQUAL: Mapping[str, Speeds] = {
    "independent steps": steady,
    "memory 0.9": remembering(0.9),
    "memory 0.98": remembering(0.98),
    "drift of up to 20 %": drifting,
    "two speeds, each for half a run": switching(0.5),
    "noise over a quarter of the run": outlasting(0.25),
    "noise over half of the run": outlasting(0.5),
    "noise over the whole run": outlasting(1),
    "noise over two runs": outlasting(2),
    "noise over five runs": outlasting(5),
    "two speeds, each for two runs": switching(2),
}
"""Pairs of these are equal runs: whoever is called changed is a false alarm."""
OUTLASTING = tuple(name for name in EQUAL if name.startswith("noise over"))


def _wandering(count: int, memory: float, rng: np.random.Generator) -> Floats:
    """An autoregression of order 1 with a standard deviation of 1."""
    noise, found = rng.standard_normal(count), np.empty(count)
    found[0] = noise[0]
    for step in range(1, count):
        found[step] = memory * found[step - 1] + math.sqrt(1 - memory**2) * noise[step]
    return found
