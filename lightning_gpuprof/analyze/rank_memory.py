"""What the summaries of the ranks say of the memory of their GPUs, side by side."""

from collections.abc import Sequence

from msgspec.structs import replace

from lightning_gpuprof.analyze.rank_times import of_one_job
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.numbers import counted
from lightning_gpuprof.model.rank_memory import RankMemory, RankNeed
from lightning_gpuprof.model.rank_summary import RankSummary


def rank_memory(own: RankSummary, others: Sequence[RankSummary]) -> RankMemory | Unmeasured:
    """Compare ranks by the peak of their GPU's memory.

    Args:
        own: Of the rank that is looked at.
        others: Whatever else lies in the run's folder.

    Returns:
        The ranks that have the same part of the model; why not, if fewer than two are left.
    """
    job = of_one_job(own, others, {}).values()
    alike = [one for one in job if one.pipeline_stage == own.pipeline_stage]
    if len(alike) < 2 <= len(job):
        return Unmeasured(why="no other rank has the same part of the model")
    found = [RankNeed(rank=one.rank, host=one.host, gpu=one.gpu_need) for one in alike if one.gpu_need is not None]
    if len(found) < 2:
        return Unmeasured(
            why=f"the peak of GPU memory is known of {counted(len(found), 'rank')} of {own.world_size}, 2 are needed"
        )
    if any(one.gpu.outside_bytes is None for one in found):
        found = [replace(one, gpu=replace(one.gpu, outside_bytes=None)) for one in found]
    return RankMemory(ranks=tuple(sorted(found, key=lambda one: one.rank)))
