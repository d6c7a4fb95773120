"""What each communication kernel did: its collective, size, type and process group."""

import re
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.communication import CollectiveKind, GroupSizeSource
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting
from lightning_gpuprof.trace.tables import ABSENT, Collective, Inputs, Rows

_KINDS: tuple[tuple[str, CollectiveKind], ...] = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
)
"""Parts of names without anything but letters; the first that is there counts."""

_NO_LETTER = re.compile(r"[^a-z]")
_RANGE = re.compile(r"^[nr]ccl:")
_DTYPE_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("float", "int", "uint32", "complexhalf", "c10complexc10half"), 4),
    **dict.fromkeys(("double", "long", "longint", "unsignedlong", "uint64", "complexfloat", "c10complexfloat"), 8),
    **dict.fromkeys(("half", "bfloat16", "c10half", "c10bfloat16", "short", "shortint", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "unsignedchar", "signedchar"), 1),
    **dict.fromkeys(("complexdouble", "c10complexdouble"), 16),
}
"""By type names of Kineto's metadata (``BFloat16``) and of its shapes (``c10::BFloat16``), letters and digits only."""


class CollectiveDescription(msgspec.Struct, frozen=True):
    """What a trace says of a collective; None is "not known"."""

    kind: CollectiveKind
    dtype: str | None = None
    message_bytes: int | None = None
    """As nccl-tests counts the size of this kind."""
    group: str | None = None
    group_size: int | None = None
    group_size_source: GroupSizeSource | None = None


class CollectiveCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The communication kernels of a trace in order of their start."""

    rows: Rows
    """In :attr:`LinkedTrace.work`."""
    what: Rows
    """Index into :attr:`described`."""
    described: tuple[CollectiveDescription, ...]


@lru_cache(maxsize=4096)
def collective_kind(name: str) -> CollectiveKind:
    """The collective that a kernel, a range of torch or Kineto's metadata is named after.

    Args:
        name: ``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``, ``ncclAllReduceRingLLKernel_sum_f32``,
            ``nccl:_all_gather_base``, ``allreduce_coalesced`` …
    """
    letters = _NO_LETTER.sub("", name.lower().split("(")[0])
    return next((kind for part, kind in _KINDS if part in letters), "unknown")


def bus_factor(kind: CollectiveKind, group_size: int) -> float:
    """Bytes that each link carries over the collective's size, as nccl-tests defines its bus bandwidth.

    Args:
        kind: Kind of collective.
        group_size: Ranks in the group.

    Returns:
        A ratio from 0 to below 2; 1 for a broadcast and other kinds that it does not correct.
    """
    if kind == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (group_size - 1) / group_size
    return 1.0


def collective_calls(linked: LinkedTrace) -> CollectiveCalls:
    """What each communication kernel did.

    By what Kineto wrote beside the kernel; else beside the operator that launched it; else by the range of torch
    around the launch (``nccl:all_reduce``), which has the shapes if they were recorded; else by the kernel's name.
    """
    trace, work = linked.trace, linked.work
    rows = np.flatnonzero(linked.is_communication)
    rows = rows[np.argsort(work.start_ns[rows], kind="stable")]
    if not len(rows):
        return CollectiveCalls(rows=rows, what=rows, described=())
    operator = linked.operator[rows]
    of_operator = np.full(len(rows), ABSENT, np.int32)
    if len(trace.cpu_op):
        of_operator = np.where(operator >= 0, trace.cpu_op.collective[operator], ABSENT)
    ranges = trace.annotation.where(linked.named(trace.annotation, lambda name: bool(_RANGE.match(name))))
    around = Nesting(ranges.start_ns, ranges.end_ns, ranges.thread).innermost(
        linked.launch_start_ns[rows], linked.launch_thread[rows]
    )
    range_name, range_inputs = np.full(len(rows), ABSENT), np.full(len(rows), ABSENT)
    if len(ranges):
        range_name = np.where(around >= 0, ranges.name[around], ABSENT)
        range_inputs = np.where(around >= 0, ranges.inputs[around], ABSENT)
    columns = (work.collective[rows], of_operator, range_name, range_inputs, work.name[rows])
    alike = groups_of(*columns)
    world = _only_group_size(linked)
    sources = zip(*(column[alike.first].tolist() for column in columns), strict=True)
    described = [_described(linked, _Sources(*key), world) for key in sources]
    distinct = {one: number for number, one in enumerate(dict.fromkeys(described))}
    renumbered = np.array([distinct[one] for one in described], np.intp)
    return CollectiveCalls(rows=rows, what=renumbered[alike.of_row], described=tuple(distinct))


def _only_group_size(linked: LinkedTrace) -> int | None:
    """The ranks of the job, if the trace knows of no smaller group."""
    world = linked.trace.about.world_size
    groups = linked.trace.about.distributed.get("pg_config")
    sizes = {group.get("pg_size") for group in groups if isinstance(group, dict)} if isinstance(groups, list) else set()
    return world if sizes <= {world} else None


class _Sources(NamedTuple):
    """Where a collective is described; ABSENT for where it is not."""

    of_kernel: int
    of_operator: int
    range_name: int
    range_inputs: int
    kernel_name: int


def _described(linked: LinkedTrace, sources: _Sources, world: int | None) -> CollectiveDescription:
    trace = linked.trace
    names = [trace.names[sources.kernel_name]]
    if sources.range_name != ABSENT:
        names.insert(0, trace.names[sources.range_name])
    written: Collective | None = None
    if (number := sources.of_kernel if sources.of_kernel != ABSENT else sources.of_operator) != ABSENT:
        written = trace.collectives[number]
        names.insert(0, written.name)
    kinds = [collective_kind(name) for name in names]
    kind = next((one for one in kinds if one != "unknown"), kinds[0])
    size, source = (written.group_size if written else None), "collective"
    if size is None:
        size, source = world, "world"
    dtype, elements = None, None
    if written is not None:
        dtype, elements = written.dtype, _elements(kind, written.elements_in, written.elements_out, size)
    if elements is None and sources.range_inputs != ABSENT:
        dtype, elements = _of_shapes(trace.inputs[sources.range_inputs], kind, size)
    width = None if dtype is None else _DTYPE_BYTES.get(re.sub(r"[^a-z0-9]", "", dtype.lower()))
    if width is None and dtype is not None and "float8" in dtype.lower():
        width = 1
    return CollectiveDescription(
        kind=kind,
        dtype=None if dtype is None else dtype.lower().replace("c10::", "").replace("long int", "long"),
        message_bytes=None if width is None or elements is None else width * elements,
        group=written.group if written else None,
        group_size=size,
        group_size_source=None if size is None else "collective" if source == "collective" else "world",
    )


def _elements(kind: CollectiveKind, given: int | None, got: int | None, group_size: int | None) -> int | None:
    """Elements that nccl-tests counts: of all_gather those that arrive, of reduce_scatter and all_to_all those sent."""
    if kind == "all_gather":
        return got if got else None if given is None or group_size is None else given * group_size
    if kind in ("reduce_scatter", "all_to_all"):
        return given
    known = [number for number in (given, got) if number is not None]
    return max(known) if known else None


def _of_shapes(inputs: Inputs, kind: CollectiveKind, group_size: int | None) -> tuple[str | None, int | None]:
    """Type and elements by the shapes of what this rank gave."""
    tensors = [shape for shape in inputs.shapes if _is_shape(shape)]
    if not inputs.types or not tensors or len(tensors) != len(inputs.shapes):
        return None, None
    return inputs.types[0], _elements(kind, sum(prod(shape) for shape in tensors), None, group_size)


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and all(isinstance(size, int) for size in shape)
