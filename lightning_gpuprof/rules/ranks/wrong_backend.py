"""Ranks with a GPU each reduce their gradients through host memory.

## What it means
gloo copies gradients to the host, reduces them there over TCP, and copies them back. NCCL (on AMD: RCCL) reduces on the
GPUs over NVLink, PCIe or InfiniBand.

## How it is measured
From the run's conditions: several ranks, devices of type cuda, and a process group of gloo or MPI. As this is a
setting, it is information without a gain; the cost is in the backward of every step.

## When it is wrong
Ranks that share one GPU cannot use NCCL. A backend for both (`cpu:gloo,cuda:nccl`) is passed over, and so is Windows,
for which there is no NCCL.

## What to do
`Trainer(strategy=DDPStrategy(process_group_backend="nccl"))`, or leave it out: it is the default on GPUs.
"""

from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, MissingSignal, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_FOR_CPUS = frozenset({"gloo", "mpi"})


_GLOO = {"device.type": "cuda", "trainer.world_size": 4, "trainer.strategy": "DDPStrategy", "trainer.backend": "gloo"}


class WrongBackend(BaseRule):
    id = "wrong-backend"
    title = "GPU ranks talk through host memory"
    needs = "ranks"

    least_ranks: int = threshold(2, source="one rank exchanges nothing")

    examples = (
        fires("4 GPUs use gloo", "info", 'DDPStrategy(process_group_backend="nccl")', run=_GLOO),
        quiet("GPUs use NCCL", run={**_GLOO, "trainer.backend": "nccl"}),
        quiet("only what is on the CPU uses gloo", run={**_GLOO, "trainer.backend": "cpu:gloo,cuda:nccl"}),
        quiet("there is one rank", run={**_GLOO, "trainer.world_size": 1, "trainer.backend": None}),
        looks_alike("the ranks are on the CPU", run={**_GLOO, "device.type": "cpu"}),
        looks_alike("the system has no NCCL", run={**_GLOO, "machine.system": "Windows AMD64"}),
        not_evaluated("the backend is not known", "backend", run={**_GLOO, "trainer.backend": None}),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        ranks = metrics.positive("trainer.world_size") or 1
        if ranks < self.least_ranks:
            return None
        device, backend = metrics.condition("device.type"), metrics.condition("trainer.backend")
        if device is None or backend is None:
            raise MissingSignal("the type of the device or the backend of the process group is not known")
        if device != "cuda" or str(backend).lower() not in _FOR_CPUS:
            return None
        if str(metrics.condition("machine.system") or "").startswith("Windows"):
            return None
        strategy = metrics.condition("trainer.strategy") or "DDPStrategy"
        change = Change(
            remove=(f'Trainer(..., strategy={strategy}(process_group_backend="{backend}"))',),
            add=(f'Trainer(..., strategy={strategy}(process_group_backend="nccl"))',),
        )
        return self.finding(
            subject=str(strategy),
            summary=f"{ranks} GPU ranks communicate through {backend}: gradients go through host memory.",
            advice=f"Use NCCL, the default on GPUs: {change.added[0]}.",
            change=change,
            evidence=(
                self.fact("backend", str(backend)),
                self.fact("device", str(device)),
                self.fact("ranks", str(ranks)),
            ),
            confidence=0.9,
        )
