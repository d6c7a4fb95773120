"""Class, input type and tensor cores of each kernel of a trace."""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.kernels import KernelClass, KernelDtype, TensorCores
from lightning_gpuprof.trace.analyses.joins.grouped import Groups, groups_of
from lightning_gpuprof.trace.analyses.kernels.kernel_names import (
    MATRIX_CLASSES,
    does_matrix_work,
    kernel_class,
    kernel_dtype,
    uses_tensor_cores,
)
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import take_or_absent
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT, Int64, Mask, Rows, distinct

_OPTIMIZER_STEP = "Optimizer.step#"
_UNSUITED = re.compile(r"gemv|gemmk1|dot_kernel|depthwise|_dw_", re.IGNORECASE)
_MATRIX_CORES_OF_AMD = re.compile(r"Instinct MI(?!25\b|50\b|60\b)|\bMI(?:1|2|3)\d\dX?\b")


class Trait(msgspec.Struct, frozen=True, kw_only=True):
    """What the names say of a kernel."""

    name: str
    kernel_class: KernelClass
    dtype: KernelDtype | None
    tensor_cores: TensorCores | None
    """None: it multiplies no matrices."""
    unsuited: bool
    """Whether tensor cores could not help: products of a matrix and a vector, convolutions of single channels."""


class KernelTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What the names say of all kernels."""

    groups: Groups
    """Kernels that are alike in name and launching operator."""
    of_group: Sequence[Trait]
    operator_name: Int64
    """Of each kernel: the name of the innermost operator around its launch, as :attr:`Trace.names` counts it;
    :data:`ABSENT` where there is none."""

    def numbered(self, values: Sequence[object]) -> Int64:
        """For each kernel the number of its group's value: equal numbers for equal values."""
        numbers: dict[object, int] = {}
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)[self.groups.of_row]

    def where(self, wanted: Callable[[Trait], bool]) -> Mask:
        """Which kernels are of a group whose trait is wanted."""
        chosen: Mask = np.array([wanted(trait) for trait in self.of_group], np.bool_)[self.groups.of_row]
        return chosen

    def at(self, kernels: Rows) -> list[Trait]:
        """The traits of some kernels."""
        return [self.of_group[number] for number in self.groups.of_row[kernels].tolist()]


def kernel_traits(linked: LinkedTrace) -> KernelTraits:
    """Look at each distinct pair of kernel and operator once."""
    trace = linked.trace
    count = len(trace.kernel)
    operator = linked.operator[:count]
    operator_name = take_or_absent(trace.cpu_op.name, operator)
    launching = _launching_range(linked, operator_name)
    groups = groups_of(trace.kernel.name, launching)
    available = tensor_cores_available(trace)
    pairs = zip(trace.kernel.name[groups.first].tolist(), launching[groups.first].tolist(), strict=True)
    of_group = [_trait(trace.names[name], None if by == ABSENT else trace.names[by], available) for name, by in pairs]
    return KernelTraits(groups=groups, of_group=of_group, operator_name=operator_name)


def _launching_range(linked: LinkedTrace, operator_name: Int64) -> Int64:
    """The name of the operator, or of the optimizer's step around it."""
    trace, count = linked.trace, len(operator_name)
    ranges = linked.phases.ranges
    around = linked.phases.innermost(linked.launch_start_ns[:count], linked.launch_thread[:count])
    inside = np.flatnonzero(around >= 0)
    in_step = inside[linked.named(ranges, lambda name: name.startswith(_OPTIMIZER_STEP))[around[inside]]]
    # the closure that Lightning gives to the optimizer holds the forward, whose operators autograd has numbered
    operator = linked.operator[in_step]
    numbered = (operator >= 0) & (trace.cpu_op.sequence[operator] >= 0) if len(trace.cpu_op) else operator >= 0
    in_step = in_step[~numbered]
    by = operator_name.copy()
    by[in_step] = ranges.name[around[in_step]]
    return by


def _trait(name: str, by: str | None, available: bool | None) -> Trait:
    of_class = kernel_class(name, by)
    tensor_cores: TensorCores | None = None
    if (of_class in MATRIX_CLASSES or of_class == "triton") and does_matrix_work(name, by):
        used = False if available is False else uses_tensor_cores(name)
        tensor_cores = "unknown" if used is None else "yes" if used else "no"
    return Trait(
        name=name,
        kernel_class=of_class,
        dtype=kernel_dtype(name),
        tensor_cores=tensor_cores,
        unsuited=tensor_cores == "no" and _UNSUITED.search(name) is not None,
    )


def tensor_cores_available(trace: Trace) -> bool | None:
    """Whether the devices that ran kernels have tensor cores (AMD: matrix cores); None if that is not known."""
    devices = distinct(trace.kernel.device).tolist()
    found = {_has_tensor_cores(trace.properties_of(device)) for device in devices}
    return found.pop() if len(found) == 1 else None


def _has_tensor_cores(properties: Mapping[str, object] | None) -> bool | None:
    if properties is None:
        return None
    name = str(properties.get("name") or "")
    if "AMD" in name or "Radeon" in name or properties.get("warpSize") != 32:
        return True if _MATRIX_CORES_OF_AMD.search(name) else None
    if "GTX 16" in name:
        return False  # Turing without them
    major = properties.get("computeMajor")
    return major >= 7 if isinstance(major, int) else None
