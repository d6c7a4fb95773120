"""Advice on memory in this run's values, in words and as data."""

from __future__ import annotations

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import condition

_EXPANDABLE = "expandable_segments:True"
_SHARDING = ("FSDP", "DeepSpeed", "ModelParallel")
"""In the names of strategies that share out parameters or states."""


def settings(metrics: Metrics) -> str:
    """The allocator's settings as the environment gives them; empty if there are none."""
    return str(condition(metrics, "allocator.settings") or "")


def growing_segments(metrics: Metrics) -> tuple[str, Change | None]:
    """How segments are made to grow, with the other settings of this run; empty if they do so already."""
    now = settings(metrics)
    if _EXPANDABLE in now:
        return "", None
    setting = f"PYTORCH_CUDA_ALLOC_CONF={f'{now},' if now else ''}{_EXPANDABLE}"
    removed = (f"export PYTORCH_CUDA_ALLOC_CONF={now}",) if now else ()
    return setting, Change(remove=removed, add=(f"export {setting}",))


def smaller_batch(metrics: Metrics) -> tuple[str, Change]:
    """Half the batch at the same effective one."""
    size = metrics.loader.batch_size if metrics.loader is not None else None
    known = condition(metrics, "trainer.accumulate_grad_batches")
    now = known if isinstance(known, int) and not isinstance(known, bool) and known > 0 else 1
    trainer, before = f"Trainer(..., accumulate_grad_batches={2 * now})", {"accumulate_grad_batches": now}
    if not size or size < 2:
        change = Change(call="Trainer", arguments={"accumulate_grad_batches": 2 * now}, before={**before})
        return f"half the batch size, and {trainer}", change
    change = Change(
        call="DataLoader",
        arguments={"batch_size": size // 2},
        before={"batch_size": size},
        remove=(f"Trainer(..., accumulate_grad_batches={now})",),
        add=(trainer,),
    )
    return f"DataLoader(..., batch_size={size // 2}), {trainer}", change


def sharding(metrics: Metrics) -> tuple[str, Change | None]:
    """How what each rank holds is shared out; empty if the strategy does so already."""
    strategy, ranks = condition(metrics, "trainer.strategy"), condition(metrics, "trainer.world_size")
    if any(name in str(strategy or "") for name in _SHARDING):
        return "", None
    several = isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 1
    arguments: dict[str, Value] = {"strategy": "fsdp", **({} if several else {"devices": 2})}
    change = Change(call="Trainer", arguments=arguments, before={"strategy": strategy} if strategy else {})
    return f"shard over {f'the {ranks} ranks' if several else 'several GPUs'}: {change.added[0]}", change
