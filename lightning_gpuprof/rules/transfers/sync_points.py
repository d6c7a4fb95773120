"""Finds places in the code that make the host wait for the device in every step, so that the device then runs dry."""

from __future__ import annotations

from dataclasses import dataclass

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.transfers.device_waits import CostlyWaits, Wait, WaitRule, times
from lightning_gpuprof.rules.wording import listed, millis, percent

_REMEDIES: dict[str, str] = {
    "aten::item": "keep the value as a tensor: self.log(name, tensor.detach()), and read it once per epoch",
    "aten::_local_scalar_dense": "keep the value as a tensor, and read it once per epoch",
    "aten::is_nonzero": "do not branch on a tensor's value: torch.where(condition, a, b) decides on the device",
    "aten::nonzero": "keep the shape fixed: torch.where(mask, x, 0) instead of x[mask]",
    "aten::masked_select": "keep the shape fixed: torch.where(mask, x, 0) instead of masked_select",
    "aten::index": "keep the shape fixed: torch.where(mask, x, 0) instead of x[mask]",
    "aten::_unique2": "torch.unique has to know how many values there are: do it on the CPU, in the Dataset",
    "aten::to": "leave the tensor on the device: .cpu() once per epoch, or .to('cpu', non_blocking=True) into pinned "
    "memory and read it a step later",
    "aten::copy_": "copy with non_blocking=True into pinned memory, and read it a step later",
    "aten::equal": "compare on the device: (a == b).all() stays a tensor",
    "cudaDeviceSynchronize": "leave torch.cuda.synchronize() out",
    "hipDeviceSynchronize": "leave torch.cuda.synchronize() out",
    "cudaStreamSynchronize": "leave the synchronisation out, or record an event and query() it later",
    "cudaEventSynchronize": "query() the event a step later instead of synchronising with it",
}


@dataclass(frozen=True, kw_only=True)
class SyncPoints(WaitRule):
    """In every step the code waits for the device, and the device then has nothing to do until the host has caught up.

    ## What it means

    Launching is asynchronous: the host runs ahead and the device always has work queued. `.item()`, `.cpu()`,
    `print(loss)`, `if tensor:`, `x[mask]`, `torch.nonzero` and `torch.cuda.synchronize()` make the host wait until the
    queue is empty; then the device waits until the next launch comes.

    ## How it is measured

    In a trace window, at each place that waits at least every second step: the idle time of the device that begins
    during the wait and ends with work launched after it, and of that no more than the host was blocked up to then in
    the step: without the waits it would be ahead by that. The time that the host is blocked is not the cost: while it
    waits, the device works. How long the device is idle in a step is
    the period of untraced steps without its busy time; the window only splits it. All such places together have to be
    met once per step and to cost 5 % of the period. The gain is that cost.

    Waits of a progress bar, of the gradient scaler, of copies from pageable memory to the device and of Lightning's
    check of all ranks have rules of their own and do not count here.

    ## When it is wrong

    - The queue is empty after a wait: if kernels are short, the device also waits for the launches that follow. That
      time is told as `launch-bound`, and a part of it would vanish with the wait. The gain here is the smaller part.
    - A wait that is removed can move to the next one. Remove all that are named.
    - Lines are known if the window was recorded with stacks (`TraceConfig(with_stack=True)`); otherwise the place is
      told by hook, module or phase.

    ## What to do

    Keep the value on the device, and read it rarely: at the end of the epoch, or every N steps.

    ## Example

    "The host waits for the device once per step, and the device then is idle for 3.10 ms of 24.0 ms: train.py(41):
    training_step (aten::item, once per step, 3.10 ms)" for `losses.append(loss.item())`.
    """

    id = "sync-points"
    cause = "code"
    explains = claims.WAITS_OF_THE_CODE

    least_per_step: float = threshold(1.0, source="the catalogue: at least one per step")
    least_ratio: float = threshold(0.05, source="heuristic, after Nsight Systems' rule for synchronising calls")

    def summary(self, found: CostlyWaits) -> str:
        """How often code waits, and where most."""
        places = listed([_told(wait) for wait in found.waits[:3]])
        return f"The host waits for the device {times(found.per_step)} per step, and {found.idle_words}: {places}"

    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """What to write instead at the costliest place."""
        return f"At {found.worst.where}, {remedy(found.worst)}.{_others(found.waits)}"


def remedy(wait: Wait) -> str:
    """What to write instead of an operation that waits."""
    return _REMEDIES.get(wait.site.operation, f"do without {wait.site.operation}, or do it once per epoch")


def _told(wait: Wait) -> str:
    operation = "" if wait.where.startswith(wait.site.operation) else f"{wait.site.operation}, "
    return f"{wait.where} ({operation}{times(wait.per_step)} per step, {millis(wait.cost_ms)})"


def _others(found: tuple[Wait, ...]) -> str:
    others = [wait for wait in found[1:] if wait.where != found[0].where]
    if not others:
        return ""
    share = sum(wait.cost_ms for wait in others) / sum(wait.cost_ms for wait in found)
    places = listed(list(dict.fromkeys(wait.where for wait in others))[:3])
    return f" Do likewise at {places}, which have {percent(share)} of it."
