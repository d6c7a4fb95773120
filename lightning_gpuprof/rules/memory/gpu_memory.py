"""What rules about a GPU's memory share: whose allocator was read, how full the GPU was, what the allocator cost."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import SEVERITIES, Gain, Severity
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.memory import DeviceMemory, Held
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import base
from lightning_gpuprof.rules.base import MissingSignal, NotApplicable, condition, possible
from lightning_gpuprof.rules.launches.device_idle import explained_step

SHORT_RATIO = 0.80
"""Share of the GPU's memory from which it is short. Heuristic."""

EXPANDABLE = "expandable_segments:True"

_SHARDING = ("FSDP", "DeepSpeed", "ModelParallel")
"""In the names of strategies that share out parameters or states."""


@dataclass(frozen=True, kw_only=True)
class Use:
    """How full a GPU was at its fullest."""

    memory: DeviceMemory
    total_bytes: float
    needed_bytes: float
    """The allocator's peak of tensors, with what others hold beside it; what the allocator only keeps is not in it."""
    outside_bytes: float | None
    """Held by CUDA's context, NCCL and other processes: in use on the GPU beyond what torch had reserved. None: not
    known, and not in ``needed_bytes``."""

    @property
    def ratio(self) -> float:
        """Needed over total."""
        return self.needed_bytes / self.total_bytes

    @property
    def reserved_ratio(self) -> float | None:
        """Reserved and outside, over total; None: not measured."""
        reserved = self.memory.reserved_peak_bytes
        return None if reserved is None else (reserved + (self.outside_bytes or 0.0)) / self.total_bytes


def allocator(metrics: Metrics) -> DeviceMemory:
    """Torch's allocator on the device that the run trains on.

    Raises:
        NotApplicable: The model runs on the CPU.
        MissingSignal: No allocator was read.
    """
    if base.is_cpu_only(metrics) and not metrics.memory.devices:
        raise NotApplicable("the model runs on the CPU")
    if not metrics.memory.devices:
        raise MissingSignal("torch's caching allocator was not read")
    return metrics.memory.devices[0]


def use(metrics: Metrics) -> Use:
    """How full the GPU was.

    Raises:
        MissingSignal: As :func:`allocator`; or the size of the GPU is not known, or a number is impossible.
    """
    memory = allocator(metrics)
    total, reserved = memory.total_bytes, memory.reserved_peak_bytes
    if total is None or not possible(total) or total <= 0:
        raise MissingSignal("the size of the GPU's memory is not known")
    base.require_possible("the allocator's peak", memory.allocated_peak_bytes, reserved or 0.0)
    device = next((d for d in metrics.devices if d.subject == memory.name), None)
    used = device.largest("memory_used_bytes") if device is not None else None
    outside = None if used is None or reserved is None else max(0.0, min(used, float(total)) - reserved)
    return Use(
        memory=memory,
        total_bytes=float(total),
        needed_bytes=memory.allocated_peak_bytes + (outside or 0.0),
        outside_bytes=outside,
    )


def held_on_gpu(metrics: Metrics) -> tuple[Held, ...]:
    """What model and optimizers hold on the one GPU that they are on.

    Raises:
        MissingSignal: It was not counted, or they are on several GPUs.
    """
    rows = tuple(row for row in metrics.memory.held if row.device.startswith(("cuda", "xpu", "hip")))
    if not rows:
        raise MissingSignal("the memory of model and optimizers was not counted")
    if len({row.device for row in rows}) > 1:
        raise MissingSignal("the model is on several GPUs, but only one allocator was read")
    return rows


def settings(metrics: Metrics) -> str:
    """The allocator's settings as the environment gives them; empty if there are none."""
    return str(condition(metrics, "allocator.settings") or "")


def expandable_advice(metrics: Metrics) -> str:
    """How segments are made to grow, in the words of this run's settings; empty if they do so already."""
    now = settings(metrics)
    if EXPANDABLE in now:
        return ""
    return f"PYTORCH_CUDA_ALLOC_CONF={now},{EXPANDABLE}" if now else f"PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}"


def expandable_change(metrics: Metrics) -> Change | None:
    """:func:`expandable_advice` as data."""
    advice, now = expandable_advice(metrics), settings(metrics)
    if not advice:
        return None
    return Change(remove=(f"export PYTORCH_CUDA_ALLOC_CONF={now}",) if now else (), add=(f"export {advice}",))


def smaller_batch(metrics: Metrics) -> tuple[str, Change]:
    """Half the batch at the same effective one, in this run's values."""
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


def shard_change(metrics: Metrics) -> Change | None:
    """:func:`shard_advice` as data."""
    advice = shard_advice(metrics)
    if not advice:
        return None
    devices: dict[str, Value] = {"devices": 2} if "devices" in advice else {}
    return Change(
        call="Trainer",
        arguments={"strategy": "fsdp", **devices},
        before={"strategy": condition(metrics, "trainer.strategy")} if condition(metrics, "trainer.strategy") else {},
    )


def shard_advice(metrics: Metrics) -> str:
    """How what each rank holds is shared out, in this run's values; empty if the strategy does so already."""
    strategy = str(condition(metrics, "trainer.strategy") or "")
    if any(name in strategy for name in _SHARDING):
        return ""
    ranks = condition(metrics, "trainer.world_size")
    if isinstance(ranks, int) and not isinstance(ranks, bool) and ranks > 1:
        return f"shard over the {ranks} ranks: Trainer(..., strategy='fsdp')"
    return "shard over several GPUs: Trainer(..., strategy='fsdp', devices=2)"


def require_steady_steps(memory: DeviceMemory, least: int) -> int:
    """Steps over which the calls of the allocator were counted.

    Raises:
        MissingSignal: There are too few.
    """
    steps = memory.steady_steps
    if steps is None or steps < least:
        raise MissingSignal(f"the allocator's calls were counted over {steps or 0} of the {least} steady steps needed")
    return steps


def counted(value: int | None, what: str) -> int:
    """A counter of the allocator.

    Raises:
        MissingSignal: This torch does not have it, or it went back.
    """
    if value is None or value < 0:
        raise MissingSignal(f"{what} were not counted")
    return value


def allocator_gain(metrics: Metrics) -> Gain | None:
    """What steps without calls of the device's allocator gain: at most the idle time of untraced steps that is theirs.

    Returns:
        None if no window of ordinary steps tells, or it is not worthwhile.
    """
    try:
        step = explained_step(metrics)
    except MissingSignal:
        return None
    if step.analysis.idle is None or "allocator" in step.analysis.idle.unseen:
        return None
    cost_ms = step.cause_ms("allocator")
    if not possible(cost_ms) or not base.worthwhile(cost_ms, step.period_ms):
        return None
    return base.gain(cost_ms, step.lower_ms(cost_ms), step.period_ms)


def cost_severity(metrics: Metrics, gain: Gain | None, least: Severity) -> Severity:
    """Severity by what the calls cost, and no less than ``least``, that by their number."""
    if gain is None:
        return least
    lower_ratio = (gain.saved_lower_ms_per_step or 0.0) / base.steady_period_ms(metrics)
    return min(least, base.severity(lower_ratio, metrics.steps.steady_count), key=SEVERITIES.index)
