"""Finds places in the code that make the host wait for the device in every step, so that the device then runs dry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import listed, millis, percent
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.transfers.device_waits import CostlyWaits, Wait, WaitRule, times

_REMEDIES: dict[str, str] = {
    "aten::item": "keep the value as a tensor: self.log(name, tensor.detach()), and read it once per epoch",
    "aten::_local_scalar_dense": "keep the value as a tensor, and read it once per epoch",
    "aten::is_nonzero": "do not branch on a tensor's value: torch.where(condition, a, b) decides on the device",
    "aten::nonzero": "keep the shape fixed: torch.where(mask, x, 0) instead of x[mask]",
    "aten::masked_select": "keep the shape fixed: torch.where(mask, x, 0) instead of masked_select",
    "aten::index": "keep the shape fixed: torch.where(mask, x, 0) instead of x[mask]",
    "aten::_unique2": "do torch.unique on the CPU, in the Dataset: it has to know how many values there are",
    "aten::to": "leave the tensor on the device: .cpu() once per epoch, or .to('cpu', non_blocking=True) into pinned "
    "memory and read it a step later",
    "aten::copy_": "copy with non_blocking=True into pinned memory, and read it a step later",
    "aten::equal": "compare on the device: (a == b).all() stays a tensor",
    "cudaDeviceSynchronize": "leave torch.cuda.synchronize() out",
    "hipDeviceSynchronize": "leave torch.cuda.synchronize() out",
    "cudaStreamSynchronize": "leave the synchronisation out, or record an event and query() it later",
    "cudaEventSynchronize": "query() the event a step later instead of synchronising with it",
}

_FRAME = re.compile(r"(.+?)\((\d+)\): ")
_LINES: dict[str, tuple[str, str]] = {
    "aten::item": ("value = tensor.item()", "value = tensor.detach()"),
    "aten::_local_scalar_dense": ("value = float(tensor)", "value = tensor.detach()"),
    "aten::is_nonzero": ("x = a if condition else b", "x = torch.where(condition, a, b)"),
    "aten::nonzero": ("x = x[mask]", "x = torch.where(mask, x, 0)"),
    "aten::masked_select": ("x = torch.masked_select(x, mask)", "x = torch.where(mask, x, 0)"),
    "aten::index": ("x = x[mask]", "x = torch.where(mask, x, 0)"),
    "aten::to": ("x = x.cpu()", 'x = x.to("cpu", non_blocking=True)  # into pinned memory, read a step later'),
    "aten::equal": ("torch.equal(a, b)", "(a == b).all()"),
    "cudaDeviceSynchronize": ("torch.cuda.synchronize()", ""),
    "hipDeviceSynchronize": ("torch.cuda.synchronize()", ""),
}
"""What such a line looks like, and what stays on the device."""


def _loss(us: float, **more: object) -> dict[str, object]:
    """Steps of an example: 10 ms of kernels; the loss is read, and then the host takes a while."""
    return {"kernels": 100, "reads": {"training_step": us}, **more}


@dataclass(frozen=True, kw_only=True)
class SyncPoints(WaitRule):
    """In every step the code waits for the GPU, and the GPU then idles until the host has caught up.

    ## What it means

    Launches are asynchronous: the host runs ahead and the GPU always has kernels queued. `.item()`, `.cpu()`,
    `print(loss)`, `if tensor:`, `x[mask]`, `torch.nonzero` and `torch.cuda.synchronize()` make the host wait until the
    queue is empty; then the GPU waits for the next launch.

    ## How it is measured

    Trace window, each place that waits at least every second step: the GPU's idle time that begins during the wait and
    ends with a kernel launched after it, and of that no more than the host was blocked up to then in the step. The time
    for which the host is blocked is not the cost, because the GPU is busy then. The total idle time is the untraced
    step time without the busy time; the window only splits it. The gain is the cost.

    Waits of a progress bar, the gradient scaler, copies from pageable memory and Lightning's check of all ranks have
    rules of their own.

    ## When it is wrong

    - With short kernels the GPU also waits for the launches that follow. That time is reported as `launch-bound`; a
      part of it would vanish with the wait.
    - A wait that is removed can move to the next one. Remove all that are named.
    - Without stacks (`TraceConfig(with_stack=True)`) the place is a hook, module or phase, not a line.

    ## What to do

    Keep the value on the GPU, and read it rarely: at the end of the epoch, or every N steps.
    """

    id = "sync-points"
    title = "The code waits for the GPU in every step"
    cause = "code"
    explains = claims.WAITS_OF_THE_CODE

    least_per_step: float = threshold(1.0, source="the catalogue: at least one per step")
    least_ratio: float = threshold(0.05, source="heuristic, after Nsight Systems' rule for synchronising calls")

    examples = (
        fires(
            "loss.item() is read", "warning", "once per step ... net.py(20): forward", saves_ms=1.52, step=_loss(1500)
        ),
        fires("the host takes 0.65 ms after it", "info", "Keep the value as a tensor", step=_loss(650)),
        fires(
            "a callback reads a value",
            "warning",
            "Watch.on_train_batch_end",
            step={"kernels": 100, "reads": {"Watch": 2000}},
        ),
        quiet("the host takes 0.4 ms after it", step=_loss(400)),
        quiet("nothing is read", step={"kernels": 100}),
        looks_alike("the next launch follows at once", step=_loss(0)),
        looks_alike("the GPU waits for a batch", step=_loss(0, fetch_us=20_000)),
        looks_alike("only tracing makes it idle", step=_loss(1500), period_ms=10.1),
        looks_alike("the progress bar reads the value", step={"kernels": 100, "reads": {"TQDMProgressBar": 2000}}),
        not_evaluated("the model is on the CPU", "runs on the CPU"),
        not_evaluated("there is no trace window", "no trace window was recorded", run={"device.type": "cuda"}),
    )

    def summary(self, found: CostlyWaits) -> str:
        """How often code waits, and where most."""
        places = listed([_described(wait) for wait in found.waits[:3]])
        return f"The host waits for the GPU {times(found.per_step)} per step, and {found.idle_words}: {places}"

    def advice(self, metrics: Metrics, found: CostlyWaits) -> str:
        """What to write instead at the costliest place."""
        text = remedy(found.worst)
        return f"{text[0].upper()}{text[1:]}. The host waits at {found.worst.where}.{_others(found.waits)}"

    def change(self, metrics: Metrics, found: CostlyWaits) -> Change | None:
        """A line of the kind that waits there, and what takes its place."""
        site = found.worst.site
        if site.operation not in _LINES:
            return None
        old, new = _LINES[site.operation]
        at = None if site.line is None else _FRAME.match(site.line.frame)
        file, line = (at[1], int(at[2])) if at is not None else ("", None)
        return Change(remove=(old,), add=(new,) if new else (), file=file, line=line)


def remedy(wait: Wait) -> str:
    """What to write instead of an operation that waits."""
    return _REMEDIES.get(wait.site.operation, f"do without {wait.site.operation}, or do it once per epoch")


def _described(wait: Wait) -> str:
    operation = "" if wait.where.startswith(wait.site.operation) else f"{wait.site.operation}, "
    return f"{wait.where} ({operation}{times(wait.per_step)} per step, {millis(wait.cost_ms)})"


def _others(found: tuple[Wait, ...]) -> str:
    others = [wait for wait in found[1:] if wait.where != found[0].where]
    if not others:
        return ""
    share = sum(wait.cost_ms for wait in others) / sum(wait.cost_ms for wait in found)
    places = listed(list(dict.fromkeys(wait.where for wait in others))[:3])
    return f" Do likewise at {places}: {percent(share)} of the idle time."
