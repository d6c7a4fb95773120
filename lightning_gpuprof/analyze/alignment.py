"""Matrix products of a window whose sizes do not fit tensor cores, beside those that do."""

import msgspec

from lightning_gpuprof.model.device_kernels import input_sizes
from lightning_gpuprof.model.matrix_kernels import MisalignedProduct
from lightning_gpuprof.model.trace.roofline import Roofline, RooflineRow

_MULTIPLES = {"fp16": 8, "bf16": 8, "tf32": 4, "fp8": 16, "int8": 16}
"""16 bytes of elements. NVIDIA, Matrix Multiplication Background, "Requirements to use Tensor Cores"."""

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addmm_", "linear"})


class _Product(msgspec.Struct, frozen=True, kw_only=True):
    row: RooflineRow
    sizes: tuple[int, int, int]
    """Rows, inner, columns."""
    multiple: int

    @property
    def batched(self) -> bool:
        return "bmm" in self.row.operator


def misaligned(roofline: Roofline) -> tuple[MisalignedProduct, ...]:
    """Products with columns that do not fit, and those of the same kind that share such a size."""
    products = _products(roofline)
    unfit_columns = {(one.batched, one.sizes[2]) for one in products if one.sizes[2] % one.multiple}
    unfit = []
    for one in products:
        shared = [s for s in reversed(one.sizes) if (one.batched, s) in unfit_columns and s % one.multiple]
        if shared:
            unfit.append((one, shared[0]))
    unfit_rows = {id(one.row) for one, _ in unfit}
    fit = [one for one in products if id(one.row) not in unfit_rows and not one.sizes[2] % one.multiple]
    return tuple(
        MisalignedProduct(row=one.row, size=size, multiple=one.multiple, peer_ratio=_peer_ratio(one, fit))
        for one, size in unfit
    )


def _products(roofline: Roofline) -> list[_Product]:
    found = []
    for row in roofline.rows:
        multiple = _MULTIPLES.get(row.dtype or "")
        matrices = [one for one in input_sizes(row.input_shape) if len(one) in (2, 3)][-2:]
        if multiple is None or row.operator.rpartition("::")[2] not in _PRODUCTS or len(matrices) != 2:
            continue
        if row.ceiling_ratio is not None and matrices[0][-1] == matrices[1][-2]:
            sizes = (matrices[0][-2], matrices[0][-1], matrices[1][-1])
            found.append(_Product(row=row, sizes=sizes, multiple=multiple))
    return found


def _peer_ratio(product: _Product, fit: list[_Product]) -> float | None:
    """The median of products of the same kind and dtype with a quarter to four times its FLOPs."""
    flops = max(product.row.flops_per_call, 1.0)
    peers = sorted(
        one.row.ceiling_ratio
        for one in fit
        if one.row.ceiling_ratio
        and one.row.dtype == product.row.dtype
        and one.batched == product.batched
        and 0.25 <= one.row.flops_per_call / flops <= 4.0
    )
    return peers[(len(peers) - 1) // 2] if peers else None
