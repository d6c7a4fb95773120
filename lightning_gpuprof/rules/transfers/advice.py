"""What to write instead of an operation that makes the host wait for the device."""

from __future__ import annotations

_WHERE = "keep the shape fixed: torch.where(mask, x, 0) instead of "
_PINNED = "into pinned memory"
REMEDIES: dict[str, tuple[str, tuple[str, ...] | None]] = {
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
