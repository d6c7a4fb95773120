"""Events of the training process to the result: what each arm brought, what could not be tried."""

from collections.abc import Sequence

from lightning_gpuprof.model.trial import BASE, Added, Arm, Block, Event, NotTried, Plan, Skipped, Started, Trial, Tried
from lightning_gpuprof.trial.arms import LOGGER_DOES_NOT_RUN, changes_numbers
from lightning_gpuprof.trial.judging import mean_step_ms, paired
from lightning_gpuprof.trial.schedule import CEILINGS


def result(plan: Plan, events: Sequence[Event], *, not_tried: Sequence[NotTried] = (), ended_in: str = "") -> Trial:
    """What was measured.

    Args:
        plan: What was to be tried.
        events: Of one program, or of several that went on with the same plan.
        not_tried: Advice that was no arm from the start.
        ended_in: Name of the arm in which the program ended by itself; empty if it did not.

    Returns:
        Without command, run and seconds.
    """
    blocks = [event for event in events if isinstance(event, Block)]
    arms = {arm.name: arm for arm in (*plan.arms, *CEILINGS)}
    added = [event.arm for event in events if isinstance(event, Added)]
    arms |= {arm.name: arm for arm in added}
    skipped = {event.arm: event for event in events if isinstance(event, Skipped)}
    if ended_in:
        skipped[ended_in] = Skipped(arm=ended_in, why="the program ended while trying it", failed=True)
    base_ms = mean_step_ms(blocks, BASE)
    together = next((arm for arm in reversed(added) if len(arm.changes) > 1), None)
    tried, left = [], list(not_tried)
    for arm in arms.values():
        one = _tried(arm, blocks, base_ms, skipped.get(arm.name))
        if one is not None:
            tried.append(one)
        elif arm.name in skipped or not arm.ceiling:
            why = skipped[arm.name].why if arm.name in skipped else "time ran out before its turn"
            rule = arm.rules[0] if arm.rules else ""
            left.append(NotTried(rule=rule, advice=arm.name, why=why, promised_speedup=arm.promised_speedup))
    started = next((event for event in events if isinstance(event, Started)), None)
    for logger in started.loggers if started else ():
        left.append(NotTried(rule="", advice=f"what {logger} costs", why=LOGGER_DOES_NOT_RUN))
    return Trial(
        device=started.device if started else "",
        base_step_ms=base_ms,
        tried=tuple(sorted((one for one in tried if one.arm != together), key=lambda one: -(one.speedup or 0.0))),
        together=next((one for one in tried if one.arm == together), None),
        not_tried=tuple(left),
        left_out=started.left_out if started else (),
        sources=started.sources if started else (),
    )


def _tried(arm: Arm, blocks: Sequence[Block], base_ms: float | None, skipped: Skipped | None) -> Tried | None:
    """None: it never ran."""
    numbers = any(changes_numbers(change) for change in arm.changes)
    found = paired(blocks, arm.name)
    if skipped is not None and skipped.failed:
        return Tried(arm=arm, outcome="failed", changes_numbers=numbers, why=skipped.why)
    if found is None or base_ms is None:
        return None
    sure = found.rounds > 1
    few = f"in {found.rounds} round{'s' if found.rounds > 1 else ''}"
    return Tried(
        arm=arm,
        outcome=found.outcome,
        step_ms=base_ms / found.speedup,
        speedup=found.speedup,
        speedup_lower=found.lower if sure else None,
        speedup_upper=found.upper if sure else None,
        rounds=found.rounds,
        steps=sum(block.steps for block in blocks if block.arm == arm.name),
        changes_numbers=numbers,
        per_sample=any(block.per_sample for block in blocks if block.arm == arm.name),
        why=few if found.outcome == "undecided" else "",
    )
