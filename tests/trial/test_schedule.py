"""Which arm runs when: played through with steps of known length, noise and a clock of its own."""

import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuprof.cli.try_ import SECONDS
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.trial import AROUND, BASE, INPUT, Added, Arm, Block, Plan, Skipped
from lightning_gpuprof.trial.judging import LEAST_ROUNDS, LEAST_S, paired
from lightning_gpuprof.trial.schedule import BLOCK_S, WANTED_ROUNDS, Schedule
from lightning_gpuprof.trial.training import SETTLING_STEPS


def loader(**arguments: Value) -> Arm:
    """An arm with other arguments of the DataLoader."""
    name = ", ".join(f"{key}={value}" for key, value in arguments.items())
    return Arm(name=name, changes=(Change(call="DataLoader", arguments=arguments),), rules=(name,))


def played(
    plan: Plan,
    step_s: Callable[[Arm], float],
    *,
    noise: float = 0.003,
    fails: Mapping[str, int] | None = None,
    **loader_of_the_program: bool,
) -> tuple[Schedule, list[Added], float]:
    """A schedule asked to its end.

    Args:
        plan: What to try.
        step_s: Of each arm.
        noise: Of a block, as a ratio.
        fails: Arms that fail in a round.
        loader_of_the_program: What the schedule is told of it.
    """
    added: list[Added] = []
    schedule = Schedule(plan=plan, report=added.append, **loader_of_the_program)
    generator = random.Random(plan.seed)
    elapsed_s = 0.0
    while (arm := schedule.next(elapsed_s)) is not None:
        if (fails or {}).get(arm.name) == schedule.round:
            schedule.skip(Skipped(arm=arm.name, why="planted", failed=True))
            continue
        steps = max(1, round(schedule.block_s(0.05) / 0.05))
        seconds = steps * step_s(arm) * (1 + generator.gauss(0, noise))
        schedule.ended(Block(arm=arm.name, round=schedule.round, steps=steps, seconds=seconds))
        elapsed_s += seconds
    return schedule, added, elapsed_s


def arms_of_rounds(schedule: Schedule) -> dict[int, list[str]]:
    """In the order in which they ran."""
    found = defaultdict(list)
    for block in schedule.blocks:
        found[block.round].append(block.arm)
    return dict(found)


def same(_: Arm) -> float:
    """No arm changes anything."""
    return 0.05


def test_each_round_has_the_base_and_every_open_arm_once() -> None:
    schedule, _, _ = played(Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=60), same, noise=0.2)
    rounds = arms_of_rounds(schedule)
    for arms in list(rounds.values())[:-1]:  # in the last one time can be over
        assert BASE in arms
        assert len(set(arms)) == len(arms)
    assert {BASE, INPUT, AROUND, "num_workers=1", "num_workers=2"} == set(rounds[0])
    assert len({tuple(arms) for arms in rounds.values() if len(arms) == 5}) > 1, "the order is drawn"


def test_the_order_is_that_of_the_seed() -> None:
    def order(seed: int) -> list[str]:
        plan = Plan(arms=(loader(num_workers=1),), seconds=30, seed=seed)
        return [block.arm for block in played(plan, same, noise=0.2)[0].blocks]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_it_ends_early_when_all_is_decided() -> None:
    schedule, _, elapsed_s = played(Plan(arms=(loader(num_workers=1),), seconds=600), same)
    assert elapsed_s < 60
    assert schedule.round + 1 < 2 * WANTED_ROUNDS


def test_a_decided_arm_leaves_and_the_others_go_on() -> None:
    def step_s(arm: Arm) -> float:
        return 0.05 if arm.ceiling or arm.name == BASE else 0.02

    generator = random.Random(0)

    def noisy(arm: Arm) -> float:
        return step_s(arm) * (1 + (generator.gauss(0, 0.3) if arm.name == "num_workers=2" else 0.0))

    plan = Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=60)
    schedule, _, _ = played(plan, noisy, noise=0.0005)
    rounds = {
        arm: max(block.round for block in schedule.blocks if block.arm == arm)
        for arm in ("num_workers=1", "num_workers=2")
    }
    assert rounds["num_workers=1"] < rounds["num_workers=2"]
    assert len([block for block in schedule.blocks if block.arm == "num_workers=1"]) >= LEAST_ROUNDS


def test_the_time_is_kept() -> None:
    plan = Plan(arms=tuple(loader(num_workers=n) for n in range(1, 9)), seconds=20)
    schedule, _, elapsed_s = played(plan, same, noise=0.3)
    assert 20 <= elapsed_s <= 20 + 2 * schedule.block_s(0.05)


def test_where_steps_are_long_a_change_has_its_rounds_and_ceilings_one() -> None:
    """Steps of the digits on two CPUs that others use as well; around a block as many steps are left out."""
    schedule, step_s, elapsed_s = Schedule(plan=Plan(arms=(loader(num_workers=2),), seconds=SECONDS)), 0.7, 0.0
    while (arm := schedule.next(elapsed_s)) is not None:
        steps = math.ceil(schedule.block_s(step_s) / step_s)
        schedule.ended(Block(arm=arm.name, round=schedule.round, steps=steps, seconds=steps * step_s))
        elapsed_s += 2 * steps * step_s
    rounds = {arm: len([block for block in schedule.blocks if block.arm == arm]) for arm in schedule.arms}
    assert (rounds[INPUT], rounds[AROUND]) == (1, 1)
    assert rounds["num_workers=2"] >= LEAST_ROUNDS


def test_nothing_runs_after_the_time() -> None:
    assert Schedule(plan=Plan(arms=(), seconds=5)).next(5.0) is None


def test_blocks_are_long_enough_for_steps_and_short_enough_for_rounds() -> None:
    few, many = (Schedule(plan=Plan(arms=tuple(loader(num_workers=i) for i in range(n)), seconds=45)) for n in (1, 30))
    assert many.block_s(0.01) == BLOCK_S[0] < few.block_s(0.01) <= BLOCK_S[1]
    assert many.block_s(2.0) >= 8.0


def test_what_is_worth_it_is_measured_together() -> None:
    factors = {"num_workers=2": 0.6, "log_every_n_steps=50": 0.8}
    logs = Arm(name="log_every_n_steps=50", changes=(Change(call="Trainer", arguments={"log_every_n_steps": 50}),))

    def step_s(arm: Arm) -> float:
        result = 0.05
        for name, factor in factors.items():
            result *= factor if name in arm.name else 1.0
        return result

    schedule, added, _ = played(Plan(arms=(loader(num_workers=2), logs), seconds=60), step_s)
    assert [one.arm.name for one in added] == ["num_workers=2 + log_every_n_steps=50"] == [schedule.together]
    assert added[0].arm.rules == ("num_workers=2",)
    assert sum(block.arm == schedule.together for block in schedule.blocks) >= LEAST_ROUNDS


def test_one_change_that_is_worth_it_is_not_measured_again() -> None:
    plan = Plan(arms=(loader(num_workers=2), loader(prefetch_factor=4)), seconds=60)
    _, added, _ = played(plan, lambda arm: 0.03 if "num_workers" in arm.name else 0.05)
    assert added == []


def test_of_changes_to_one_argument_the_better_is_combined() -> None:
    pin = loader(pin_memory=True)
    plan = Plan(arms=(loader(num_workers=1), loader(num_workers=4), pin), seconds=90)
    steps = {"num_workers=1": 0.04, "num_workers=4": 0.03, "pin_memory=True": 0.045}
    _, added, _ = played(plan, lambda arm: steps.get(arm.name, 0.05))
    assert [one.arm.name for one in added] == ["num_workers=4 + pin_memory=True"]


def test_an_arm_that_fails_does_not_come_again_and_the_round_goes_on() -> None:
    plan = Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=30)
    schedule, _, _ = played(plan, same, noise=0.2, fails={"num_workers=1": 1})
    assert [block.round for block in schedule.blocks if block.arm == "num_workers=1"] == [0]
    assert {BASE, INPUT, AROUND, "num_workers=2"} <= set(arms_of_rounds(schedule)[1])
    assert "num_workers=1" not in schedule.running


@pytest.mark.parametrize("seed", range(5))
def test_the_search_finds_the_best_workers_and_then_how_far_they_prefetch(seed: int) -> None:
    counts = (0, 1, 2, 4, 8)
    best = {0: 0.05, 1: 0.04, 2: 0.02, 4: 0.03, 8: 0.06}

    def step_s(arm: Arm) -> float:
        if not arm.changes:
            return 0.05
        arguments = arm.changes[0].arguments
        workers = arguments["num_workers"]
        assert isinstance(workers, int)
        return best[workers] * (0.9 if arguments.get("prefetch_factor") == 4 else 1.0)

    plan = Plan(arms=tuple(loader(num_workers=n) for n in counts), seconds=60, loader=True, seed=seed)
    schedule, added, _ = played(plan, step_s, noise=0.01)
    assert [one.arm.name for one in added] == [f"num_workers=2, prefetch_factor={depth}" for depth in (4, 8)]
    measured_s = {arm: sum(block.seconds for block in schedule.blocks if block.arm == arm) for arm in schedule.arms}
    assert measured_s["num_workers=8"] < LEAST_S, "a slow one is dropped"


def no_workers_help(arm: Arm) -> float:
    """Step time in s where other numbers of workers than those of the program cost something."""
    return 0.07 if "num_workers" in arm.name and arm.name != "num_workers=0" else 0.05


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ({}, []),
        ({"can_pin": True}, []),
        ({"can_prefetch": True}, ["prefetch_factor=4", "prefetch_factor=8"]),
        (
            {"can_prefetch": True, "can_pin": True},
            [
                "prefetch_factor=4",
                "prefetch_factor=8",
                "pin_memory=True",
                "prefetch_factor=4, pin_memory=True",
                "prefetch_factor=8, pin_memory=True",
            ],
        ),
    ],
)
def test_a_search_in_which_no_workers_help_tries_what_the_programs_own_can_do(
    told: Mapping[str, bool], names: list[str]
) -> None:
    plan = Plan(arms=tuple(loader(num_workers=n) for n in (0, 1, 2)), seconds=60, loader=True)
    _, added, _ = played(plan, no_workers_help, **told)
    assert [one.arm.name for one in added] == names


def test_queues_are_deepened_though_the_workers_alone_are_undecided() -> None:
    stalls = itertools.cycle([0.03, 0.07])

    def step_s(arm: Arm) -> float:
        if arm.name == "num_workers=1":
            return 0.07
        if "prefetch_factor" in arm.name:
            return 0.03
        return next(stalls) if arm.name == "num_workers=2" else 0.05

    plan = Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=30, loader=True)
    schedule, added, _ = played(plan, step_s)
    deeper = ["num_workers=2, prefetch_factor=4", "num_workers=2, prefetch_factor=8"]
    assert [one.arm.name for one in added] == deeper
    at_work = [arms for arms in arms_of_rounds(schedule).values() if deeper[0] in arms]
    assert len(at_work) >= LEAST_ROUNDS
    assert all(set(arms) <= {BASE, "num_workers=2", *deeper} for arms in at_work), "no time for what is not better"


_OF_TWO = ["num_workers=2, prefetch_factor=4", "num_workers=2, prefetch_factor=8"]


@pytest.mark.parametrize(
    ("perfect_s", "has_workers", "deeper"),
    [(0.025, False, _OF_TWO), (0.025, True, ["prefetch_factor=4", "prefetch_factor=8"]), (0.05, False, [])],
)
def test_where_loading_costs_something_workers_that_gain_nothing_read_further_ahead(
    perfect_s: float, has_workers: bool, deeper: list[str]
) -> None:
    """One batch of many is slow: two of the queue do not hide it, though all of them are loaded beside the model."""

    def step_s(arm: Arm) -> float:
        times = {INPUT: perfect_s, "num_workers=1": 0.056, "num_workers=2": 0.051}
        return 0.03 if "prefetch_factor" in arm.name else times.get(arm.name, 0.05)

    plan = Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=45, loader=True)
    schedule, added, _ = played(plan, step_s, noise=0.01, can_prefetch=has_workers)
    assert [one.arm.name for one in added] == deeper
    found = [paired(schedule.blocks, one.arm.name) for one in added]
    assert [one is not None and one.outcome for one in found] == ["faster" for _ in deeper]


def test_a_search_tries_nothing_twice() -> None:
    pinned = loader(num_workers=2, pin_memory=True)
    finer = loader(num_workers=2, pin_memory=True, prefetch_factor=8)
    plan = Plan(arms=(pinned, finer), seconds=60, loader=True)
    times = {pinned.name: 0.02, finer.name: 0.04}
    _, added, _ = played(plan, lambda arm: times.get(arm.name, 0.05), can_pin=True)
    assert [one.arm.changes[0].arguments for one in added] == [pinned.changes[0].arguments | {"prefetch_factor": 4}]


def test_a_search_begins_with_few_workers() -> None:
    plan = Plan(arms=tuple(loader(num_workers=n) for n in (8, 1, 16, 2, 4)), seconds=60, loader=True)
    schedule, _, _ = played(plan, same)
    first = [name for name in arms_of_rounds(schedule)[0] if "num_workers" in name]
    assert first == [f"num_workers={n}" for n in (1, 2, 4, 8, 16)]


def test_equal_arms_gain_nothing_though_each_round_is_looked_at() -> None:
    outcomes = []
    for seed in range(60):
        plan = Plan(arms=(loader(num_workers=1), loader(num_workers=2)), seconds=45, seed=seed)
        schedule, _, _ = played(plan, same, noise=0.01)
        outcomes += [found.outcome for arm in plan.arms if (found := paired(schedule.blocks, arm.name)) is not None]
    assert len(outcomes) == 120
    assert outcomes.count("no gain") >= 0.95 * len(outcomes)
    assert {"faster", "slower"}.isdisjoint(outcomes)


FITS = [json.loads(line) for line in Path(__file__).with_name("recorded_noise.jsonl").read_text().splitlines()]
"""Deviations of the blocks of real trials from the median of their arm, in the order in which they ran."""


def simulated(fit: Mapping[str, Any], speedup: float, seed: int) -> tuple[str, float]:
    """Outcome and seconds of a trial of one change, with the recorded noise of a fit in stretches of neighbours."""
    generator = random.Random(f"{fit['fit']} {seed}")
    noise, step_s = fit["permille"], fit["step_ms"] / 1e3
    schedule = Schedule(plan=Plan(arms=(loader(num_workers=2),), seconds=SECONDS, seed=seed))
    elapsed_s, at = 0.0, generator.randrange(len(noise))
    while (arm := schedule.next(elapsed_s)) is not None:
        steps = max(4, round(schedule.block_s(step_s) / step_s))
        seconds = steps * step_s / (speedup if arm.changes else 1.0)
        stretches, taken_s = max(1, round(seconds / fit["block_s"])), 0.0
        for _ in range(stretches):
            at = generator.randrange(len(noise)) if generator.random() < 0.05 else (at + 1) % len(noise)
            taken_s += seconds / stretches * math.exp(noise[at] / 1e3)
        schedule.ended(Block(arm=arm.name, round=schedule.round, steps=steps, seconds=taken_s))
        elapsed_s += taken_s + SETTLING_STEPS * step_s
    found = paired(schedule.blocks, "num_workers=2")
    return found.outcome, elapsed_s


@pytest.mark.parametrize(
    ("speedup", "outcomes", "least_ratio"),
    [
        (1.0, ("no gain",), 0.95),
        (1.04, ("faster", "undecided"), 0.7),
        (1.1, ("faster",), 0.98),
        (0.9, ("slower", "no gain"), 0.98),
    ],
)
def test_with_the_noise_of_real_fits_a_change_is_called_what_it_is(
    speedup: float, outcomes: tuple[str, ...], least_ratio: float
) -> None:
    found = [simulated(fit, speedup, seed) for fit in FITS for seed in range(10)]
    assert sum(one in outcomes for one, _ in found) >= least_ratio * len(found)
    assert max(seconds for _, seconds in found) <= 1.2 * SECONDS
