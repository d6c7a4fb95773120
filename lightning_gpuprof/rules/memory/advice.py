"""Advice on memory in this run's values, in words and as data."""

from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.rules.base import Advice, Change, Metrics, Value, gib

_EXPANDABLE = "expandable_segments:True"
_SHARDING = ("FSDP", "DeepSpeed", "ModelParallel")
"""In the names of strategies that share out parameters or states."""
_MANY_BYTES = 2**30
_LESS = {
    "optimizer state": "keep it in 8 bits or factored (Adafactor)",
    "parameters": "keep them in half precision: Trainer(precision='bf16-true')",
    "gradients": "keep them in half precision: Trainer(precision='bf16-true')",
}
"""What makes a holder smaller on one GPU."""


def settings(metrics: Metrics) -> str:
    """The allocator's settings as the environment gives them; empty if there are none."""
    return str(metrics.condition("allocator.settings") or "")


def growing_segments(metrics: Metrics) -> Advice:
    """How segments are made to grow, with the other settings of this run; empty if they do so already."""
    now = settings(metrics)
    if _EXPANDABLE in now:
        return "", None
    setting = f"PYTORCH_CUDA_ALLOC_CONF={f'{now},' if now else ''}{_EXPANDABLE}"
    removed = (f"export PYTORCH_CUDA_ALLOC_CONF={now}",) if now else ()
    return setting, Change(remove=removed, add=(f"export {setting}",))


def smaller_batch(metrics: Metrics) -> Advice:
    """Half the batch at the same effective one."""
    size, now = metrics.batch_size, metrics.positive("trainer.accumulate_grad_batches") or 1
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


def sharding(metrics: Metrics) -> Advice:
    """How what each rank holds is shared out; empty if the strategy does so already."""
    strategy = metrics.condition("trainer.strategy")
    if any(name in str(strategy or "") for name in _SHARDING):
        return "", None
    ranks = metrics.positive("trainer.world_size") or 1
    several = ranks > 1
    arguments: dict[str, Value] = {"strategy": "fsdp", **({} if several else {"devices": 2})}
    change = Change(call="Trainer", arguments=arguments, before={"strategy": strategy} if strategy else {})
    return f"shard over {f'the {ranks} ranks' if several else 'several GPUs'}: {change.added[0]}", change


def most_memory(metrics: Metrics) -> Advice:
    """What frees the most memory first, and the first change among it."""
    options = [option for advise in (_fragments, _others, _largest_holder) if (option := advise(metrics)) is not None]
    if not options:
        smaller, change = smaller_batch(metrics)
        lines = "This shows the lines that hold the memory: GpuProfiler(trace=TraceConfig(memory_snapshot=True))"
        return f"Use a smaller batch and accumulate: {smaller}. {lines}", change
    return " ".join(text for text, _ in options), next((change for _, change in options if change is not None), None)


def _fragments(metrics: Metrics) -> Advice | None:
    """Where enough was free in what torch had reserved, but in too small pieces."""
    end = metrics.memory.out_of_memory
    if end is None or end.requested_bytes is None or end.free_in_reserved_bytes is None:
        return None
    free, largest = end.free_in_reserved_bytes, end.largest_free_bytes or 0
    setting, change = growing_segments(metrics)
    if not setting or free < end.requested_bytes or largest >= end.requested_bytes:
        return None
    why = f"{gib(free)} of the reserved memory were free, but the largest piece was {gib(largest)}."
    return f"Before the start, set {setting}. Why: {why}", change


def _others(metrics: Metrics) -> Advice | None:
    held = [(device.median("memory_others_bytes") or 0.0, device.subject) for device in metrics.devices]
    others, name = next((one for one in held if one[0] >= _MANY_BYTES), (0.0, ""))
    return (f"End the other processes on {name}, which hold {gib(others)} (nvidia-smi).", None) if others else None


def _largest_holder(metrics: Metrics) -> Advice | None:
    kind = metrics.holders.largest
    if not kind:
        return None
    verb = "holds" if kind == "optimizer state" else "hold"
    most = f"{capital(kind)} {verb} most ({gib(metrics.holders.held_bytes[kind])})"
    if kind == "activations":
        smaller, change = smaller_batch(metrics)
        return f"{most}: halve the batch ({smaller}) or recompute them (torch.utils.checkpoint).", change
    shard, sharded = sharding(metrics)
    return f"{most}: {f'{shard}, or ' if shard else ''}{_LESS[kind]}.", sharded
