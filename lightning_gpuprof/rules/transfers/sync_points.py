"""In every step the code waits for the GPU, and the GPU then idles until the host has caught up.

## What it means
Launches are asynchronous: the host runs ahead, and the GPU always has kernels queued. `.item()`, `.cpu()`,
`print(loss)`, `if tensor:`, `x[mask]`, `torch.nonzero` and `torch.cuda.synchronize()` make the host wait until the
queue is empty. The GPU then waits for the next launch.

## How it is measured
A trace window shows each place that waits at least every second step. Its cost is the GPU's idle time that begins
during the wait and ends with a kernel launched after it, but no more than the host was blocked up to then in the step.
The time for which the host is blocked is not the cost, because the GPU is busy then. The total idle time is the
untraced step time minus the busy time; the window only splits it. The gain is the cost.

Waits of a progress bar, of the gradient scaler, of copies from pageable memory and of Lightning's check of all ranks
have rules of their own.

## When it is wrong
- With short kernels, the GPU also waits for the launches that follow. That time is reported as `launch-bound`, and part
  of it would vanish with the wait.
- A wait that is removed can move to the next one. Remove all that are named.
- Without stacks (`TraceConfig(with_stack=True)`) the place is a hook, module or phase, not a line.

## What to do
Keep the value on the GPU and read it rarely: at the end of the epoch, or every N steps.
"""

import re

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.model.device_step import HostWaits, Wait
from lightning_gpuprof.model.numbers import capital
from lightning_gpuprof.rules.base import Change, Metrics, claims, listed, millis, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED, WaitRule, idle_words, times

_WHERE = "keep the shape fixed: torch.where(mask, x, 0) instead of "
_PINNED = "into pinned memory"
_REMEDIES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "aten::item": (
        "keep the value as a tensor: self.log(name, tensor.detach()), and read it once per epoch",
        ("value = tensor.item()", "value = tensor.detach()"),
    ),
    "aten::_local_scalar_dense": (
        "keep the value as a tensor, and read it once per epoch",
        ("value = float(tensor)", "value = tensor.detach()"),
    ),
    "aten::is_nonzero": (
        "do not branch on a tensor's value: torch.where(condition, a, b) decides on the device",
        ("x = a if condition else b", "x = torch.where(condition, a, b)"),
    ),
    "aten::nonzero": (f"{_WHERE}x[mask]", ("x = x[mask]", "x = torch.where(mask, x, 0)")),
    "aten::masked_select": (
        f"{_WHERE}masked_select",
        ("x = torch.masked_select(x, mask)", "x = torch.where(mask, x, 0)"),
    ),
    "aten::index": (f"{_WHERE}x[mask]", ("x = x[mask]", "x = torch.where(mask, x, 0)")),
    "aten::_unique2": ("do torch.unique on the CPU, in the Dataset: it has to know how many values there are", None),
    "aten::to": (
        f"leave the tensor on the device: .cpu() once per epoch, or .to('cpu', non_blocking=True) {_PINNED} and read "
        "it a step later",
        ("x = x.cpu()", f'x = x.to("cpu", non_blocking=True)  # {_PINNED}, read a step later'),
    ),
    "aten::copy_": (f"copy with non_blocking=True {_PINNED}, and read it a step later", None),
    "aten::equal": ("compare on the device: (a == b).all() stays a tensor", ("torch.equal(a, b)", "(a == b).all()")),
    "cudaDeviceSynchronize": ("leave torch.cuda.synchronize() out", ("torch.cuda.synchronize()",)),
    "hipDeviceSynchronize": ("leave torch.cuda.synchronize() out", ("torch.cuda.synchronize()",)),
    "cudaStreamSynchronize": ("leave the synchronisation out, or record an event and query() it later", None),
    "cudaEventSynchronize": ("query() the event a step later instead of synchronising with it", None),
}
"""By operation: what to do; where it is a line, such a line and what takes its place."""
_FRAME = re.compile(r"(.+?)\((\d+)\): ")


def _loss(us: float, where: str = "training_step", **more: object) -> dict[str, object]:
    """Steps of an example: 10 ms of kernels; the loss is read, and then the host takes a while."""
    return {"kernels": 100, "reads": {where: us}, **more}


class SyncPoints(WaitRule):
    id = "sync-points"
    title = "The code waits for the GPU in every step"
    cause = "code"
    explains = claims.WAITS_OF_THE_CODE

    least_per_step: float = threshold(1.0, source="heuristic: at least one per step")
    least_ratio: float = threshold(0.05, source="heuristic, after Nsight Systems' rule for synchronising calls")

    examples = (
        fires("loss.item() is read", "warning", "once ... forward() (net.py:20)", saves_ms=1.52, step=_loss(1500)),
        fires("the host takes 0.65 ms after it", "info", "Keep the value as a tensor", step=_loss(650)),
        fires("a callback reads a value", "warning", "Watch.on_train_batch_end", step=_loss(2000, "Watch")),
        quiet("the host takes 0.4 ms after it", step=_loss(400)),
        quiet("nothing is read", step={"kernels": 100}),
        looks_alike("the next launch follows at once", step=_loss(0)),
        looks_alike("the GPU waits for a batch", step=_loss(0, fetch_us=20_000)),
        looks_alike("only tracing makes it idle", step=_loss(1500), period_ms=10.1),
        looks_alike("the progress bar reads the value", step=_loss(2000, "TQDMProgressBar")),
        *UNTRACED,
    )

    def summary(self, found: HostWaits) -> str:
        places = listed([_described(wait) for wait in found.waits[:3]])
        return f"The host waits for the GPU {times(found.per_step)} per step, and {idle_words(found)}: {places}"

    def advice(self, metrics: Metrics, found: HostWaits) -> str:
        operation, where = found.worst.site.operation, found.worst.where
        remedy, _ = _REMEDIES.get(operation, (f"do without {operation}, or do it once per epoch", None))
        others = [wait for wait in found.waits[1:] if wait.where != where]
        also = ""
        if others:
            share = percent(sum(wait.cost_ms for wait in others) / found.cost_ms)
            places = listed(list(dict.fromkeys(in_words(wait.where) for wait in others))[:3])
            also = f" Do likewise in {places}: {share} of the idle time."
        return f"{capital(remedy)}. The host waits in {in_words(where)}.{also}"

    def change(self, metrics: Metrics, found: HostWaits) -> Change | None:
        site = found.worst.site
        _, lines = _REMEDIES.get(site.operation, ("", None))
        if lines is None:
            return None
        at = None if site.line is None else _FRAME.match(site.line.frame)
        file, line = (at[1], int(at[2])) if at is not None else ("", None)
        return Change(remove=lines[:1], add=lines[1:], file=file, line=line)


def _described(wait: Wait) -> str:
    operation = "" if wait.where.startswith(wait.site.operation) else f"{wait.site.operation} "
    return f"{in_words(wait.where)}, {operation}{times(wait.per_step)} per step ({millis(wait.cost_ms)})"
