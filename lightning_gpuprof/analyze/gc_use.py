"""What the garbage collector's pauses took of the steps."""

from collections.abc import Sequence

from lightning_gpuprof.analyze.during_steps import StepTime
from lightning_gpuprof.model.host import GcUse, GenerationPauses, LongPause
from lightning_gpuprof.model.journal import Sample

_MAX_LONGEST = 20
_VERY_LONG_S = 0.020
_GENERATIONS = range(4)


def gc_use(
    sums: Sequence[tuple[Sample, float]], long: Sequence[Sample], time: StepTime, period_s: float | None
) -> GcUse | None:
    """Pauses during the steps.

    Args:
        sums: Samples ``gc``, with the seconds that each stands for.
        long: Samples ``gc_pause``.
        time: Where the steps lie.
        period_s: Mean time of a step; None if not known.

    Returns:
        Time in s, but per step in ms; the ratio is of the sampled time in steps. None if pauses were not measured.
    """
    # The first sample of a journal has none before it, but sums all the same.
    ratios = [(ratio, s or 1.0) for one, s in sums if (ratio := one.values.get("pause_ratio")) is not None]
    if not ratios:
        return None
    generations = []
    for number in _GENERATIONS:
        count, total_s, longest_s = (
            [v for sample, _ in sums if (v := sample.values.get(f"gen{number}_{what}")) is not None]
            for what in ("count", "pause_s", "longest_s")
        )
        if count:
            generations.append(
                GenerationPauses(
                    generation=number,
                    count=int(sum(count)),
                    total_s=sum(total_s),
                    longest_s=max(longest_s, default=0.0),
                )
            )
    pauses = []
    for sample in long:
        where, pause_s = time.at(sample.t_ns), sample.values.get("pause_s")
        if where is not None and pause_s is not None:
            generation = int(sample.values.get("generation") or 0)
            pauses.append(LongPause(batch=where[0], generation=generation, pause_s=pause_s))
    pauses.sort(key=lambda pause: -pause.pause_s)
    ratio = sum(ratio * s for ratio, s in ratios) / sum(s for _, s in ratios)
    return GcUse(
        pause_ratio=ratio,
        pause_ms_per_step=None if period_s is None else ratio * period_s * 1e3,
        longest_s=max((g.longest_s for g in generations), default=0.0),
        generations=tuple(generations),
        longest=tuple(pauses[:_MAX_LONGEST]),
        long_count=sum(pause.pause_s >= _VERY_LONG_S for pause in pauses),
        lost_count=int(sum(sample.values.get("lost_count") or 0 for sample, _ in sums)),
    )
