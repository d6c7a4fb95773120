"""Which arm runs next, and for how long: rounds in a drawn order, until all is decided or the time is over."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.trial import AROUND, BASE, INPUT, Added, Arm, Block, Plan, Skipped
from lightning_gpuprof.trial.arms import title
from lightning_gpuprof.trial.at_start import variables
from lightning_gpuprof.trial.judging import Paired, faster_arms, paired

BLOCK_S = (0.1, 3.0)
"""Least and most seconds of measured steps in a block. Heuristic: other programs slow a machine down for tenths of a
second, which both arms of a pair have to meet. Of 20 s of equal steps on a shared machine, compared with each other in
pairs of blocks, the standard error is 1.2 % with blocks of 0.1 s, 2.2 % with 0.4 s and 4.0 % with 0.8 s."""
BLOCK_STEPS = 4, 16
"""Least steps of a block, and those that are enough."""
WANTED_ROUNDS = 12
"""Rounds that the time should be enough for where steps are long."""
LAST_SHARE = 0.3
"""Of the time, kept for what is worth it at once."""
FINER_SHARE = 0.5
"""Of the time of a search, kept for how far the best number of workers prefetches. Heuristic: as much as for the number
itself, because the same few seconds decide less where one batch of many is slow."""
CEILING_SHARE = 1 / 3
"""Of the time, after which ceilings are not measured again. Heuristic: with steps of 0.7 s a round with both takes half
of 45 s, and a change needs three."""
CEILINGS = (Arm(name=INPUT, ceiling="input"), Arm(name=AROUND, ceiling="around the model"))


@dataclass
class Schedule:
    """Asked before each block, told after it.

    Args:
        plan: What to try.
        report: Told of arms that are added.
        can_prefetch: Whether the program's own loader has workers, so that a search in which no other number of them is
            better tries how far they prefetch.
        can_pin: Whether its batches go to a GPU and are not pinned, so that a search tries that, too.
    """

    plan: Plan
    report: Callable[[Added], None] = lambda _: None
    can_prefetch: bool = False
    can_pin: bool = False
    blocks: list[Block] = field(default_factory=list)
    arms: dict[str, Arm] = field(default_factory=dict)
    """All by name, the base among them."""
    together: str = ""
    """Name of the arm with all that is worth it; empty while it has not begun."""

    def __post_init__(self) -> None:
        self.arms = {arm.name: arm for arm in (Arm(name=BASE), *self.plan.arms, *CEILINGS)}
        self._open = [name for name in self.arms if name != BASE]
        self._random = random.Random(self.plan.seed)
        self._round = -1
        self._queue: list[str] = []
        self._searched = False
        rest_ratio = LAST_SHARE if len(self.plan.arms) > 1 else 0.0
        self._kept_ratio = FINER_SHARE if self.plan.loader else rest_ratio

    @property
    def round(self) -> int:
        """Of the arm that runs."""
        return self._round

    @property
    def running(self) -> set[str]:
        """Arms that may run again, the base among them."""
        return {BASE, *self._open}

    def block_s(self, step_s: float) -> float:
        """Measured seconds of the next blocks, where a step of the base takes ``step_s``."""
        least, enough = (steps * step_s for steps in BLOCK_STEPS)
        if self.plan.alone is not None:
            return max(self.plan.seconds, least)
        per_block = self.plan.seconds * (1 - self._kept_ratio) / (WANTED_ROUNDS * max(2, len(self._open) + 1))
        return max(BLOCK_S[0], least, min(BLOCK_S[1], 0.7 * per_block, enough))

    def next(self, elapsed_s: float) -> Arm | None:
        """The arm that runs now, so long after the first step; None: all is decided, or the time is over."""
        if self.plan.alone is not None:
            self._round = 0
            return None if self.blocks else self.arms[BASE]
        while elapsed_s < self.plan.seconds:
            if self._queue:
                return self.arms[self._queue.pop(0)]
            self._settle(elapsed_s)
            if not self._open:
                return None
            self._round += 1
            self._queue = [BASE, *self._open]
            self._random.shuffle(self._queue)
            if self.plan.loader and not self._round:  # what a worker takes is known before many start
                self._queue.sort(key=lambda name: _workers(self.arms[name]))
        return None

    def ended(self, block: Block) -> None:
        """A block of the arm that ran."""
        self.blocks.append(block)

    def skip(self, skipped: Skipped) -> None:
        """An arm cannot be tried."""
        self._open = [name for name in self._open if name != skipped.arm]
        self._queue = [name for name in self._queue if name != skipped.arm]

    def _settle(self, elapsed_s: float) -> None:
        """Between two rounds: what is decided leaves; what comes last begins."""
        results = {name: paired(self.blocks, name) for name in self._open}
        self._open = [name for name, one in results.items() if one is None or not self._is_over(name, one, elapsed_s)]
        if self.plan.loader:
            self._drop_slow_loaders()
        if self._open and elapsed_s < self.plan.seconds * (1 - self._kept_ratio):
            return
        if self.plan.loader and not self._searched:
            self._searched = True
            best = self._best_loader()
            if finer := self._finer(best):
                self._open = [name for name in self._open if best is None or name == best.name]
                self._open += [self._add(arm) for arm in finer]
        elif not self.together and (all_of_them := self._combined()) is not None:
            self.together = all_of_them.name
            self._open = [self._add(all_of_them)]

    def _is_over(self, name: str, found: Paired, elapsed_s: float) -> bool:
        """Whether an arm is decided. With a ceiling nothing is: the time is better spent on changes."""
        if not self.arms[name].ceiling:
            return found.is_decided
        return found.is_enough or (bool(self.plan.arms) and elapsed_s >= CEILING_SHARE * self.plan.seconds)

    def _drop_slow_loaders(self) -> None:
        """In a search only the best counts: what is surely slower than another one leaves."""
        found = {name: paired(self.blocks, name) for name in self.arms if _is_loader(self.arms[name])}
        sure = {name: one for name, one in found.items() if one is not None and one.is_enough}
        best = max((one.lower for one in sure.values()), default=0.0)
        self._open = [name for name in self._open if name not in sure or sure[name].upper >= best]

    def _add(self, arm: Arm) -> str:
        self.arms[arm.name] = arm
        self.report(Added(arm=arm))
        return arm.name

    def _combined(self) -> Arm | None:
        """All advice that is worth it; what gains more wins where two set the same."""
        return combined([self.arms[name] for name in faster_arms(self.blocks, self.arms) if self.arms[name].changes])

    def _best_loader(self) -> Arm | None:
        """The fastest by now, though undecided: with deeper queues it may gain more. None: that of the program.

        Where loading costs something, as its ceiling shows, also the fastest of those that gain nothing: a queue of two
        batches hides none that takes as long as ten others. Where the program has workers, its own do so instead.
        """
        found = {name: paired(self.blocks, name) for name, arm in self.arms.items() if _is_loader(arm)}
        gains = {
            name: one.speedup
            for name, one in found.items()
            if one is not None and one.outcome in ("faster", "undecided") and one.speedup > 1.0
        }
        ceiling = paired(self.blocks, INPUT)
        if not gains and not self.can_prefetch and ceiling is not None and ceiling.outcome == "faster":
            gains = {
                name: one.speedup
                for name, one in found.items()
                if one is not None and one.outcome != "slower" and _workers(self.arms[name])
            }
        return self.arms[max(gains, key=gains.__getitem__)] if gains else None

    def _finer(self, best: Arm | None) -> Sequence[Arm]:
        """How far the best number of workers prefetches; with a GPU also each depth with pinned memory."""
        change = Change(call="DataLoader") if best is None else best.changes[0]
        if not (self.can_prefetch if best is None else change.arguments.get("num_workers")):
            return ()
        finer = [_with(change, prefetch_factor=depth) for depth in (4, 8)]
        if self.can_pin:
            finer += [_with(one, pin_memory=True) for one in (change, *finer)]
        rules = () if best is None else best.rules
        arms = {title(one): Arm(name=title(one), changes=(one,), rules=rules) for one in finer if one != change}
        return [arm for name, arm in arms.items() if name not in self.arms]


def combined(arms: Sequence[Arm]) -> Arm | None:
    """Several arms as one; where two set the same, the first of them counts. None where fewer than two go together."""
    chosen: list[Arm] = []
    for arm in arms:
        if not any(_set_by(arm) & _set_by(other) for other in chosen):
            chosen.append(arm)
    if len(chosen) < 2:
        return None
    return Arm(
        name=" + ".join(arm.name for arm in chosen),
        changes=tuple(change for arm in chosen for change in arm.changes),
        rules=tuple(rule for arm in chosen for rule in arm.rules),
    )


def _is_loader(arm: Arm) -> bool:
    return len(arm.changes) == 1 and arm.changes[0].call == "DataLoader"


def _workers(arm: Arm) -> int:
    """That an arm starts; 0 where it does not say."""
    counts = [change.arguments.get("num_workers") for change in arm.changes]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _with(change: Change, **arguments: Value) -> Change:
    return msgspec.structs.replace(change, arguments=change.arguments | arguments)


def _set_by(arm: Arm) -> set[tuple[str, str]]:
    arguments = {(change.call, name) for change in arm.changes for name in change.arguments}
    return arguments | {("", name) for name in variables(arm)}
