"""Arms that need a process of their own: short processes of the whole program in turn, with an arm and without."""

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.trial import BASE, Arm, Block, Event, Plan, Skipped, Started
from lightning_gpuprof.trial import program
from lightning_gpuprof.trial.at_start import variables
from lightning_gpuprof.trial.judging import LEAST_PAIRS, paired

PROCESS_S = 4.0
"""Measured seconds of a process. Heuristic: its start costs more, and what differs between starts is not in them."""


def compare(
    command: Sequence[str],
    arms: Sequence[Arm],
    seconds: float,
    *,
    on_event: Callable[[Event], None],
    say: Callable[[str], None],
    environ: Mapping[str, str],
    first_round: int = 0,
) -> None:
    """Start the program again and again: in each round once as it is, and once with each arm, in a drawn order.

    Args:
        command: Its words.
        arms: What to try.
        seconds: Of wall time; two rounds are always made.
        on_event: Told of the blocks of each round, and of arms that failed.
        say: Shows what is tried.
        environ: The program's environment.
        first_round: Number of the first round.

    Raises:
        TrialError: The program as it is cannot be tried; rounds before that were told.
    """
    still = {arm.name: arm for arm in arms}
    blocks: list[Block] = []
    order = random.Random(first_round)
    begin = time.monotonic()
    for number in range(first_round, first_round + 1000):
        queue = [Arm(name=BASE), *still.values()]
        order.shuffle(queue)
        begin_of_round = time.monotonic()
        found: dict[str, tuple[Block, Started]] = {}
        for arm in queue:
            left = seconds - (time.monotonic() - begin)
            time_left = f"{left:.0f} s left, " if left > 0 else ""
            say(f"{time_left}round {number - first_round + 1} (whole processes): {arm.name}")
            ended = _measured(command, arm, environ)
            block = next((event for event in ended.events if isinstance(event, Block)), None)
            started = next((event for event in ended.events if isinstance(event, Started)), None)
            if block is not None and started is not None:
                found[arm.name] = (msgspec.structs.replace(block, arm=arm.name, round=number, process=True), started)
                continue
            if arm.name == BASE:
                raise TrialError(program.failure_reason(ended, command) or program.death_notice(ended, command))
            failed = any(isinstance(event, Skipped) and event.failed for event in ended.events)
            on_event(Skipped(arm=arm.name, why=program.missing_block_reason(ended), failed=failed or ended.code != 0))
            del still[arm.name]
        base = found[BASE][1]
        if number == first_round:
            on_event(base)
        for name, (block, started) in found.items():
            try:
                blocks.append(_scaled_to_samples(block, started.samples_per_step, base.samples_per_step))
                on_event(blocks[-1])
            except TrialError as error:
                on_event(Skipped(arm=name, why=str(error)))
                del still[name]
        results = {name: paired(blocks, name) for name in still}
        still = {name: still[name] for name, one in results.items() if one is None or not one.is_decided}
        now = time.monotonic()
        if not still or (number - first_round + 1 >= LEAST_PAIRS and 2 * now - begin_of_round > begin + seconds):
            return


def _measured(command: Sequence[str], arm: Arm, environ: Mapping[str, str]) -> program.Ended:
    """One process with an arm."""
    changed = variables(arm)
    kept = {name: value for name, value in environ.items() if name not in changed}
    given = {name: value for name, value in changed.items() if value is not None}
    with tempfile.TemporaryDirectory(prefix="gpuprof-try-") as name:
        plan = Plan(arms=(), seconds=PROCESS_S, alone=arm)
        return program.run(command, plan, Path(name), on_event=lambda _: None, environ={**kept, **given})


def _scaled_to_samples(block: Block, samples: float | None, wanted: float | None) -> Block:
    """A block whose seconds are those for as many samples as a step of the base holds.

    Raises:
        TrialError: It is not known how many that are.
    """
    if samples == wanted:
        return block
    if samples is None or wanted is None:
        raise TrialError("the number of samples per step is not known")
    return msgspec.structs.replace(block, seconds=block.seconds * wanted / samples, per_sample=True)
