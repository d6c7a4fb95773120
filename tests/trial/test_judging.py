"""Results from blocks whose speed-ups are known: simulated, with noise, drift and disturbed rounds."""

import math
import random
from collections import Counter
from statistics import stdev

import msgspec
import pytest

from lightning_gpuprof.model.trial import BASE, Block
from lightning_gpuprof.trial.judging import LEAST_ROUNDS, Paired, faster_arms, mean_step_ms, paired

ROUNDS = 6
NOISE = 0.01
TRIALS = 400


def simulated(
    generator: random.Random, *, speedup: float, rounds: int = ROUNDS, noise: float = NOISE, drift: float = 0.0
) -> list[Block]:
    """Blocks of the base and of one arm; each round has a disturbance of its own that hits both."""
    blocks = []
    for number in range(rounds):
        disturbed = math.exp(generator.gauss(0, 0.2) + drift * number)
        for arm, step_s in ((BASE, 0.1), ("arm", 0.1 / speedup)):
            seconds = 10 * step_s * disturbed * math.exp(generator.gauss(0, noise))
            blocks.append(Block(arm=arm, round=number, steps=10, seconds=seconds))
    generator.shuffle(blocks)
    return blocks


def found(blocks: list[Block]) -> Paired:
    """The arm's result."""
    result = paired(blocks, "arm")
    assert result is not None
    return result


@pytest.mark.parametrize("speedup", [0.8, 1.0, 1.05, 2.0])
@pytest.mark.parametrize("rounds", [3, 6, 20])
def test_the_interval_covers_nine_tenths(speedup: float, rounds: int) -> None:
    generator = random.Random(rounds)
    results = [found(simulated(generator, speedup=speedup, rounds=rounds)) for _ in range(TRIALS)]
    covered = sum(one.lower <= speedup <= one.upper for one in results) / TRIALS
    assert 0.85 <= covered <= 0.94


@pytest.mark.parametrize(
    ("seed", "of", "most_wrong"),
    [
        (1, {"speedup": 1.0}, 0),
        (2, {"speedup": 1.01, "noise": 0.003}, 0.05 * TRIALS),
        (4, {"speedup": 1.0, "drift": 0.3}, 0.05 * TRIALS),
    ],
    ids=["equal arms", "less than is worth it", "a drift of the machine"],
)
def test_what_is_no_gain_is_called_none(seed: int, of: dict[str, float], most_wrong: float) -> None:
    generator = random.Random(seed)
    outcomes = Counter(found(simulated(generator, **of)).outcome for _ in range(TRIALS))
    assert outcomes["no gain"] >= 0.95 * TRIALS
    assert outcomes["faster"] + outcomes["slower"] <= most_wrong


@pytest.mark.parametrize(("speedup", "outcome"), [(1.5, "faster"), (1.1, "faster"), (0.7, "slower"), (0.9, "slower")])
def test_what_gains_or_costs_is_named(speedup: float, outcome: str) -> None:
    generator = random.Random(3)
    outcomes = Counter(found(simulated(generator, speedup=speedup)).outcome for _ in range(TRIALS))
    assert outcomes[outcome] >= 0.99 * TRIALS


def test_too_few_rounds_decide_nothing() -> None:
    generator = random.Random(5)
    for rounds in range(1, LEAST_ROUNDS):
        result = found(simulated(generator, speedup=3.0, rounds=rounds, noise=1e-6))
        assert (result.outcome, result.is_decided) == ("undecided", False)
    assert found(simulated(generator, speedup=3.0, rounds=1)).upper == math.inf


def test_a_large_gain_of_short_blocks_is_decided_and_a_small_one_is_not() -> None:
    """Nine rounds fitted into the time, with less than 2 s measured in all: the rest went into 16 workers."""
    generator = random.Random(8)
    large, small = (simulated(generator, speedup=speedup, rounds=9, noise=0.2) for speedup in (20.0, 1.5))
    short = [[msgspec.structs.replace(one, seconds=one.seconds / 10) for one in blocks] for blocks in (large, small)]
    assert [found(blocks).outcome for blocks in short] == ["faster", "undecided"]
    assert found(small).outcome == "faster"


def test_much_noise_stays_undecided() -> None:
    assert found(simulated(random.Random(6), speedup=1.0, noise=0.4)).outcome == "undecided"


def test_an_arm_is_decided_once_its_interval_is_narrow() -> None:
    generator = random.Random(7)
    assert found(simulated(generator, speedup=2.0, noise=0.001)).is_decided
    wide = found(simulated(generator, speedup=2.0, noise=0.1))
    assert wide.outcome == "faster"
    assert not wide.is_decided


def alternating(rounds: int, speedup: float, apart: float) -> list[Block]:
    """Rounds of equal steps whose speed-ups lie so far above and below one, in turn."""
    return [
        Block(arm=arm, round=number, steps=10, seconds=seconds)
        for number in range(rounds)
        for arm, seconds in ((BASE, 1.0), ("arm", math.exp(apart * (-1) ** number) / speedup))
    ]


def test_a_gain_that_is_known_and_just_not_worth_it_is_none_rather_than_unclear() -> None:
    result = found(alternating(12, 1.025, 0.015))
    assert result.lower < 1.02 < 1.03 < result.upper, "more rounds would hardly move it"
    assert (result.outcome, result.is_decided) == ("no gain", True)
    assert found(alternating(12, 1.035, 0.015)).outcome == "faster"


@pytest.mark.parametrize(("rounds", "quantile"), [(16, 1.753), (17, 1.746), (31, 1.697), (121, 1.658)])
def test_the_interval_is_that_of_student_however_many_rounds(rounds: int, quantile: float) -> None:
    logs = [0.1 * (-1) ** number for number in range(rounds)]
    error = stdev(logs) / math.sqrt(rounds)
    result = found(alternating(rounds, 1.0, 0.1))
    assert math.log(result.upper / result.lower) / 2 / error == pytest.approx(quantile, abs=0.01)


def test_rounds_without_the_base_or_the_arm_do_not_count() -> None:
    blocks = [
        Block(arm=BASE, round=0, steps=10, seconds=2.0),
        Block(arm="arm", round=0, steps=10, seconds=1.0),
        Block(arm="arm", round=1, steps=10, seconds=9.0),
        Block(arm=BASE, round=2, steps=10, seconds=9.0),
        Block(arm="arm", round=2, steps=0, seconds=0.0),
    ]
    result = found(blocks)
    assert (result.rounds, round(result.speedup, 6)) == (1, 2.0)
    assert paired(blocks, "another") is None


def test_the_mean_step_is_that_of_all_steps() -> None:
    blocks = [Block(arm=BASE, round=n, steps=steps, seconds=1.0) for n, steps in enumerate((10, 30))]
    assert mean_step_ms(blocks, BASE) == pytest.approx(50)
    assert mean_step_ms(blocks, "arm") is None


def test_what_is_worth_it_comes_fastest_first() -> None:
    speedups = {"same": 1.0, "good": 1.3, "best": 2.0, "worse": 0.5}
    blocks = [
        Block(arm=arm, round=number, steps=10, seconds=(1 + 0.001 * number) / speedup)
        for number in range(4)
        for arm, speedup in {BASE: 1.0, **speedups}.items()
    ]
    assert faster_arms(blocks, speedups) == ["best", "good"]
