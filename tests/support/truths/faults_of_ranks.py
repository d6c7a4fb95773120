"""Faults of ranks that train together: what is wrong, how large it is drawn, and the twins without it."""

from itertools import count
from random import Random

from msgspec.structs import replace

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.rank_memory import GpuNeed
from lightning_gpuprof.model.rank_summary import RankSummary
from truths.faults_of_memory import TOTAL_BYTES, Allocator
from truths.gpu_runs import GpuRun, Program
from truths.gpu_steps import Step, Work, busy, layers, update

LINK_BYTES_PER_US = 1e5
"""All-reduced by 8 ranks: a bus bandwidth of 175 GB/s."""

_RANKS: dict[str, Value] = {
    "trainer.world_size": 8,
    "trainer.strategy": "DDPStrategy",
    "trainer.backend": "nccl",
    "trainer.devices": 8,
}


def _distributed(step: Work, **conditions: Value) -> Program:
    document = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}
    return Program(step=step, conditions={**_RANKS, **conditions}, document=document)


def exposed_reductions(random: Random, faulty: bool) -> Program:
    """All gradients are reduced once backward has ended; the twin reduces each while the next is computed."""
    forward, backward = busy(random)
    buckets, us = random.randint(8, 12), random.uniform(2000.0, 3000.0)
    part = layers(2, 4096, passes=2)

    def reduce(run: GpuRun) -> None:
        if faulty:
            backward(run)
        for _ in range(buckets):
            if not faulty:
                part(run)
            took_us = us if faulty else us / 2
            run.collective(took_us, int(took_us * LINK_BYTES_PER_US), ranks=8)
        if not faulty:
            part(run)
        run.communication_done()

    return _distributed(Step(forward=forward, backward=reduce, update=update))


def reductions_without_nvlink(random: Random, faulty: bool) -> Program:
    """Gradients are reduced beside backward, but through host memory: most of them come late. The twin has NVLink."""
    forward, _ = busy(random)
    part = layers(2, 4096, passes=2)
    buckets, nbytes = random.randint(8, 12), random.randint(50, 100) << 20
    link_bytes_per_us = random.uniform(5e3, 12e3) if faulty else LINK_BYTES_PER_US

    def reduce(run: GpuRun) -> None:
        for _ in range(buckets):
            part(run)
            run.collective(nbytes / link_bytes_per_us, nbytes, ranks=8)
        run.communication_done()

    return _distributed(Step(forward=forward, backward=reduce, update=update))


def reductions_between_steps(random: Random, faulty: bool) -> Program:
    """An optimizer steps in every fourth batch; gradients are reduced in each, the twin's only before a step."""
    forward, _ = busy(random)
    buckets, us, every = random.randint(8, 12), random.uniform(8000.0, 9000.0), 4
    part, numbers = layers(2, 4096, passes=2), count(1)

    def reduce(run: GpuRun) -> None:
        for _ in range(buckets):
            part(run)
            run.collective(us, int(us * LINK_BYTES_PER_US), ranks=8)
        run.communication_done()

    steps = Step(forward=forward, backward=reduce, update=update)
    between = Step(forward=forward, backward=reduce if faulty else layers(2 * buckets, 4096, passes=2), update=None)
    return _distributed(
        lambda run: (between if next(numbers) % every else steps)(run),
        **{
            "model.automatic_optimization": False,
            "model.trainable_parameters": buckets * int(us * LINK_BYTES_PER_US) // 4,
        },
    )


def synced_norms(random: Random, faulty: bool) -> Program:
    """Each layer's statistics are exchanged between ranks; the twin's layers take long beside that."""
    norms, us, channels = random.randint(40, 60), random.uniform(40.0, 80.0), 512
    layer = layers(1, 2048 if faulty else 5120)

    def exchange(passes: int, name: str, nbytes: int) -> Work:
        def work(run: GpuRun) -> None:
            for _ in range(norms):
                for _ in range(passes):
                    layer(run)
                run.collective(us, nbytes, ranks=8, name=name)
                run.communication_done()
                if name == "AllGather":
                    run.item(op="aten::nonzero")

        return work

    gathered = exchange(1, "AllGather", 8 * (2 * channels + 1) * 4)
    return _distributed(
        Step(forward=gathered, backward=exchange(2, "AllReduce", 2 * channels * 4), update=update),
        **{"model.sync_batchnorms": norms, "trainer.sync_batchnorm": True},
    )


def check_of_ranks(random: Random, faulty: bool) -> Program:
    """Lightning asks all ranks in each step whether one was told to stop, and short steps wait for the answer."""
    forward, backward = layers(random.randint(8, 12), 1536), layers(random.randint(8, 12), 1536, passes=2)
    answer_us, other_us = random.uniform(25.0, 60.0), random.uniform(350.0, 600.0)

    def check(run: GpuRun) -> None:
        run.copy(2.0, 4, kind="HtoD (Pageable -> Device)")
        run.collective(answer_us, 4, ranks=8, name="Broadcast")
        run.communication_done()
        run.item()
        run.python(other_us)

    def reduce(run: GpuRun) -> None:
        backward(run)
        run.collective(60.0, 4 << 20, ranks=8)
        run.communication_done()

    def tail(run: GpuRun) -> None:
        run.python(150.0)

    return _distributed(
        Step(forward=forward, backward=reduce, update=update, check=check if faulty else None, after=tail)
    )


def unused_search(random: Random, faulty: bool) -> Program:
    """DDP looks in each step for parameters that got no gradient; a hint, which nothing is measured for."""
    forward, backward = busy(random)
    searching = {"trainer.find_unused_parameters": faulty, "trainer.gradient_as_bucket_view": True}
    return _distributed(Step(forward=forward, backward=backward, update=update), **searching)


def copied_buckets(random: Random, faulty: bool) -> Program:
    """Gradients lie in memory twice, once in DDP's buckets; the twin's are views of these."""
    forward, backward = busy(random)
    return _distributed(
        Step(forward=forward, backward=backward, update=update),
        **{
            "trainer.gradient_as_bucket_view": not faulty,
            "device.memory_bytes": TOTAL_BYTES,
            "model.parameter_bytes": int(random.uniform(0.08, 0.2) * TOTAL_BYTES),
            "model.parameters": 1_000_000,
            "model.trainable_parameters": 1_000_000,
        },
    )


def gathered_outputs(random: Random, faulty: bool) -> Program:
    """Rank 0 keeps the outputs of all ranks; the twin's ranks need the same, but for what batches differ in."""
    forward, backward = busy(random)
    own, gathered = random.uniform(0.15, 0.25), random.uniform(0.25, 0.35) * faulty
    allocator, of_others = Allocator(activations=own + gathered), Allocator(activations=own).readings(2)
    peak = max(values["allocated_peak_bytes"] or 0.0 for values in of_others.values())

    def others(rank0: RankSummary) -> list[RankSummary]:
        needs = [GpuNeed(tensors_bytes=peak * random.uniform(0.95, 1.05)) for _ in range(7)]
        return [replace(rank0, rank=rank, pid=rank0.pid + rank, gpu_need=need) for rank, need in enumerate(needs, 1)]

    return Program(
        step=Step(forward=forward, backward=backward, update=update),
        samples=allocator.readings,
        held=allocator.held,
        conditions={**_RANKS, "memory.gpu0.total_bytes": TOTAL_BYTES},
        others=others,
    )


def backend_for_cpus(random: Random, faulty: bool) -> Program:
    """Ranks with a GPU exchange gradients through gloo, on the host; the twin's through NCCL."""
    forward, backward = busy(random)
    return _distributed(
        Step(forward=forward, backward=backward, update=update), **{"trainer.backend": "gloo" if faulty else "nccl"}
    )
