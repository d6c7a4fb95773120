"""Groups operators whose work is known: their work, device time and type."""

import re
from collections.abc import Sequence
from functools import partial

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.kernels import KernelClass
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.analyses.joins.input_shapes import shape_labels
from lightning_gpuprof.trace.analyses.joins.operator_calls import operator_calls
from lightning_gpuprof.trace.analyses.kernels.kernel_names import MATRIX_CLASSES
from lightning_gpuprof.trace.analyses.kernels.kernel_traits import KernelTraits, kernel_traits
from lightning_gpuprof.trace.analyses.roofline.counted_work import counted_work
from lightning_gpuprof.trace.analyses.roofline.operator_work import Work
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import take_or_absent
from lightning_gpuprof.trace.tables import ABSENT, Float64, Int64, Mask, Rows, distinct, summed

_TRANSFER = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost", re.IGNORECASE)
"""Copies that go over the bus, which no ceiling of the device limits."""
_ALGORITHMS = (("Winograd", re.compile("winograd", re.IGNORECASE)), ("FFT", re.compile(r"fft[123]d", re.IGNORECASE)))


class WorkGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that count, by operator and shapes and types of the inputs; only groups that launched device work.

    Device work is without copies between host and device. Columns and lists have one entry per group, unless they say
    otherwise.
    """

    operators: list[str]
    shapes: list[str]
    kinds: list[KernelClass]
    dtypes: list[str | None]
    """What is computed in: the operands' type; of fp32 matrices TF32 if that is what the kernels' names say."""
    algorithms: list[str | None]
    """Winograd or FFT, if a kernel of the group says so: it does less than the formula counts."""
    calls: Int64
    """Those that launched device work; also of the next three columns."""
    flops: Float64
    bytes: Float64
    """NaN where it is not known."""
    device_ns: Int64
    call_row: Rows
    """For each call, also those whose launches were lost: its row in :attr:`Trace.cpu_op`."""
    call_group: Rows
    call_flops: Float64
    work_group: Rows
    """For each row of :attr:`Trace.device_work` the group that it was launched in, :data:`ABSENT` if none."""
    matrix_ns: int
    """Device time of kernels of matrix products, convolutions and attention that were launched in the window."""
    matrix_known_ns: int
    """The part of it in groups of these kinds."""

    @property
    def is_matrix(self) -> Mask:
        """Whether each group is of matrix products, convolutions or attention."""
        return np.array([kind in MATRIX_CLASSES for kind in self.kinds], np.bool_)


def work_groups(linked: LinkedTrace) -> WorkGroups | None:
    """Groups of the calls that count; see :class:`~lightning_gpuprof.trace.analyses.roofline.counted_work.CountedWork`.

    Returns:
        None if there is no group: no operator with known work launched device work.
    """
    trace, ops, found = linked.trace, linked.trace.cpu_op, counted_work(linked)
    counted = np.flatnonzero(found.counted == np.arange(len(ops)))
    call_of_work, time_ns, launched = _device_work(linked, found.counted)
    label, said = shape_labels(trace, counted)
    groups = groups_of(ops.name[counted], label)
    on_device = np.zeros(len(groups), np.bool_)
    on_device[groups.of_row[launched[counted] > 0]] = True
    if not on_device.any():
        return None

    # groups that ran on the host only are left out
    number = np.where(on_device, np.cumsum(on_device) - 1, ABSENT)
    kept = on_device[groups.of_row]
    row, group = counted[kept], number[groups.of_row[kept]]
    timed = launched[row] > 0
    count, first = int(on_device.sum()), counted[groups.first[on_device]]
    group_of_row: Rows = np.full(len(ops), ABSENT, np.intp)
    group_of_row[row] = group
    work_group = take_or_absent(group_of_row, call_of_work)

    works = [found.works[index] for index in found.work[first].tolist()]
    flops = np.array([work.flops for work in found.works], np.float64)[found.work[row]]
    moved = np.array([np.nan if work.bytes is None else work.bytes for work in found.works])[found.work[row]]
    kinds: list[KernelClass] = [work.kind for work in works]
    traits = kernel_traits(linked)
    matrix_ns, matrix_known_ns = _matrix_ns(linked, traits, work_group, kinds)
    return WorkGroups(
        operators=[trace.names[name] for name in ops.name[first].tolist()],
        shapes=[said[text][0] for text in label[groups.first[on_device]].tolist()],
        kinds=kinds,
        dtypes=_dtypes(linked, traits, work_group, works),
        algorithms=_algorithms(linked, work_group, count),
        calls=np.bincount(group[timed], minlength=count).astype(np.int64),
        flops=np.bincount(group[timed], weights=flops[timed], minlength=count).astype(np.float64),
        bytes=np.bincount(group[timed], weights=moved[timed], minlength=count).astype(np.float64),
        device_ns=summed(group, time_ns[row], count),
        call_row=row,
        call_group=group,
        call_flops=flops,
        work_group=work_group,
        matrix_ns=matrix_ns,
        matrix_known_ns=matrix_known_ns,
    )


def _device_work(linked: LinkedTrace, counted: Rows) -> tuple[Rows, Int64, Int64]:
    """The call that counts for each device work; for each operator the time and the number of what it counts for."""
    work = linked.work
    is_transfer = ~linked.is_kernel & linked.named(work, partial(_has, _TRANSFER))
    call = take_or_absent(counted, operator_calls(linked).operator_of_work)
    call = np.where(is_transfer, ABSENT, call)
    known = call >= 0
    time_ns = summed(call[known], work.duration_ns[known], len(counted))
    return call, time_ns, np.bincount(call[known], minlength=len(counted)).astype(np.int64)


def _matrix_ns(
    linked: LinkedTrace, traits: KernelTraits, work_group: Rows, kinds: list[KernelClass]
) -> tuple[int, int]:
    count = len(linked.trace.kernel)
    is_matrix = traits.where(lambda trait: trait.kernel_class in MATRIX_CLASSES or trait.tensor_cores is not None)
    is_matrix &= linked.launched[:count]
    # the last entry is what ABSENT points to
    is_known = np.array([*(kind in MATRIX_CLASSES for kind in kinds), False])[work_group[:count]]
    lasting = linked.trace.kernel.duration_ns
    return int(lasting[is_matrix].sum()), int(lasting[is_matrix & is_known].sum())


def _algorithms(linked: LinkedTrace, work_group: Rows, count: int) -> list[str | None]:
    found: list[str | None] = [None] * count
    kernel_group = work_group[: len(linked.trace.kernel)]
    for algorithm, pattern in _ALGORITHMS:
        says = linked.named(linked.trace.kernel, partial(_has, pattern))
        for number in distinct(kernel_group[says & (kernel_group >= 0)]).tolist():
            found[number] = algorithm
    return found


def _has(pattern: re.Pattern[str], name: str) -> bool:
    return pattern.search(name) is not None


def _dtypes(linked: LinkedTrace, traits: KernelTraits, work_group: Rows, works: Sequence[Work]) -> list[str | None]:
    """Ask the kernels that multiply where the operands' type leaves it open, those with the most time first."""
    open_ = np.array([*(one.kind in MATRIX_CLASSES and one.dtype in (None, "fp32") for one in works), False])
    kernel_group = work_group[: len(linked.trace.kernel)]
    asked = np.flatnonzero(open_[kernel_group] & traits.where(lambda trait: trait.tensor_cores is not None))
    by_dtype = groups_of(kernel_group[asked], traits.groups.of_row[asked])
    times: dict[int, dict[str | None, int]] = {}
    lasting = by_dtype.sums(linked.trace.kernel.duration_ns[asked])
    for first, time in zip(asked[by_dtype.first].tolist(), lasting.tolist(), strict=True):
        of_group = times.setdefault(int(kernel_group[first]), {})
        dtype = traits.of_group[int(traits.groups.of_row[first])].dtype
        of_group[dtype] = of_group.get(dtype, 0) + time
    dtypes: list[str | None] = [one.dtype for one in works]
    for number, of_group in times.items():
        most = max(of_group, key=lambda dtype: of_group[dtype])
        if dtypes[number] is None or most == "tf32":
            dtypes[number] = most
    return dtypes
