"""A lower bound of an operator's FLOPs and memory traffic, from its name and input shapes."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import msgspec
import numpy as np

from lightning_gpuprof.model.trace.kernels import KernelClass, KernelDtype
from lightning_gpuprof.trace.analyses.roofline.operands import Operands, Shape, UnknownError, as_shape


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator has to do at least.

    Floating-point operations count a multiply-add as 2. Everything that is no matrix product, convolution or
    attention counts 1 per element of its largest tensor, whatever the function: it is bound by memory anyway.
    """

    flops: int
    bytes: int | None
    """Compulsory traffic: every input read once and every output written once. None without the element types."""
    dtype: KernelDtype | None
    """Type of the operands. ``fp32`` products may be computed in TF32: only the kernel's name says so."""
    kind: KernelClass


_Rule = Callable[[Operands], Work]


def work_of(
    name: str, shapes: Sequence[object] | None, types: Sequence[object] | None, concrete: Sequence[object] | None = None
) -> Work | None:
    """Lower bound of the work of one call of an operator.

    Known are leaves: operators that launch the kernels themselves. Not known, since they call a leaf and would count
    its work twice: ``aten::linear``, ``matmul``, ``einsum``, ``conv2d``, ``convolution``, ``_convolution``,
    ``layer_norm``, ``batch_norm``, ``softmax``, ``dropout``, ``scaled_dot_product_attention``, ``clone``,
    ``contiguous``, ``to``, ``_to_copy``. A few leaves can still run inside another one: ``_flash_attention_forward``
    inside ``_scaled_dot_product_flash_attention`` (likewise the efficient and the cuDNN variants and the backward
    ones), ``sum`` inside ``mean``, ``clamp_min`` inside ``relu``, ``copy_`` inside ``addmm``,
    ``cudnn_convolution_backward_input`` and ``_weight`` inside ``cudnn_convolution_backward``. So of operators that
    are nested in each other count the outermost for which this function gives an answer.

    FLOPs follow the conventions of ``torch.utils.flop_counter``: 2·m·n·k of a matrix product; 2·N·(positions)·numel(W)
    of a convolution, with the output positions, or the input positions if it is transposed; each of the two backward
    passes that ``output_mask`` asks for costs as much as the forward one; attention has two products forward and five
    backward (2.5 times as much: FlashAttention recomputes the scores). Two differences make this a lower bound:
    grouped weight gradients are counted with their groups, and causal attention only on and below the diagonal.

    Without ``concrete`` (traces before torch 2.1): a forward convolution is not known, since its stride and padding
    are not; a backward one counts one of its two passes, and the smaller number of positions; attention counts as
    causal.

    Args:
        name: The operator's name, e.g. ``aten::mm``.
        shapes: ``Input Dims`` of the event: for each argument the list of its dimensions, empty for a number, or for
            a list of tensors a list of such lists.
        types: ``Input type``: for each argument the name of its element type; empty in old traces.
        concrete: ``Concrete Inputs``: for each argument that is no tensor its value as text; None if not recorded.

    Returns:
        None if the operator is not a known leaf, or what was recorded does not suffice. Never raises.
    """
    rule = _RULES.get(name)
    if rule is None or not shapes:
        return None
    try:
        return rule(Operands(shapes, types or (), concrete))
    except (UnknownError, ValueError, TypeError, IndexError, KeyError, ZeroDivisionError):
        return None


def _sum_or_none(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _scaled(elements: int, element_bytes: int | None) -> int | None:
    return None if element_bytes is None else elements * element_bytes


def _product(left: int, right: int, bias: int | None = None, out_bytes: int | None = None) -> _Rule:
    """Matrix product of the arguments ``left`` and ``right``, each with any batch dimensions in front."""

    def rule(operands: Operands) -> Work:
        a, b = operands.shape(left), operands.shape(right)
        if len(a) != len(b) or len(a) < 2 or a[-1] != b[-2] or a[:-2] != b[:-2]:
            raise UnknownError
        out = prod(a[:-1]) * b[-1]
        written = _scaled(out, out_bytes or operands.element_bytes(left))
        read = [operands.bytes_of(left), operands.bytes_of(right)]
        if bias is not None:
            read.append(operands.bytes_of(bias))
        return Work(
            flops=2 * out * a[-1], bytes=_sum_or_none([*read, written]), dtype=operands.dtype(left), kind="gemm"
        )

    return rule


def _matrix_vector(matrix: int, vector: int, bias: int | None = None) -> _Rule:
    def rule(operands: Operands) -> Work:
        *rows, k = operands.shape(matrix)
        if operands.shape(vector) != (k,) or len(rows) > 1:
            raise UnknownError
        read = [operands.bytes_of(position) for position in (matrix, vector, bias) if position is not None]
        written = _scaled(prod(rows), operands.element_bytes(matrix))
        return Work(
            flops=2 * prod(rows) * k, bytes=_sum_or_none([*read, written]), dtype=operands.dtype(matrix), kind="gemm"
        )

    return rule


def _convolution(
    *,
    stride: int,
    padding: int,
    dilation: int | None,
    bias: int | None = None,
    groups: int | None = None,
    output_padding: int | None = None,
    transposed: bool | int = False,
) -> _Rule:
    """A convolution by the positions of its arguments, None for what it does not have.

    ``transposed`` is True or False for all calls, or the position of the flag.
    """

    def rule(operands: Operands) -> Work:
        x, weight = operands.shape(0), operands.shape(1)
        spatial = len(weight) - 2
        if spatial < 1 or len(x) != len(weight):
            raise UnknownError
        strides, paddings = operands.integers(stride, spatial), operands.integers(padding, spatial)
        dilations = (1,) * spatial if dilation is None else operands.integers(dilation, spatial)
        count = 1 if groups is None else operands.integers(groups, 1)[0]
        flags = (transposed,) if isinstance(transposed, bool) else operands.flags(transposed)
        if flags is None:
            raise UnknownError
        reach = [d * (k - 1) for d, k in zip(dilations, weight[2:], strict=True)]
        if flags[0]:
            extra = (0,) * spatial if output_padding is None else operands.integers(output_padding, spatial)
            rows = zip(x[2:], strides, paddings, reach, extra, strict=True)
            out_positions = tuple((size - 1) * s - 2 * p + r + e + 1 for size, s, p, r, e in rows)
            channels = weight[1] * count
        else:
            sides = zip(x[2:], strides, paddings, reach, strict=True)
            out_positions = tuple((size + 2 * p - r - 1) // s + 1 for size, s, p, r in sides)
            channels = weight[0]
        expected = weight[0] if flags[0] else weight[1] * count
        if min(out_positions) < 0 or (groups is not None and x[1] != expected):
            raise UnknownError
        positions = prod(x[2:]) if flags[0] else prod(out_positions)
        written = _scaled(x[0] * channels * prod(out_positions), operands.element_bytes(0))
        read = [operands.bytes_of(position) for position in (0, 1, bias) if position is not None]
        return Work(
            flops=2 * x[0] * positions * prod(weight),
            bytes=_sum_or_none([*read, written]),
            dtype=operands.dtype(),
            kind="convolution",
        )

    return rule


def _convolution_backward(grad: int, x: int, mask: int, transposed: int | None) -> _Rule:
    """Backward of a convolution: ``grad`` and ``x`` are the positions of two tensors, the weight is the third."""

    def rule(operands: Operands) -> Work:
        grad_shape, x_shape, weight = operands.shape(grad), operands.shape(x), operands.shape(2)
        if not len(grad_shape) == len(x_shape) == len(weight) > 2 or grad_shape[0] != x_shape[0]:
            raise UnknownError
        flags = None if transposed is None else operands.flags(transposed)
        if transposed is None:
            positions = prod(grad_shape[2:])
        elif flags is None:
            positions = min(prod(grad_shape[2:]), prod(x_shape[2:]))
        else:
            positions = prod((x_shape if flags[0] else grad_shape)[2:])
        one_pass = 2 * x_shape[0] * positions * prod(weight)
        asked = operands.flags(mask)
        x_bytes, weight_bytes, grad_bytes = operands.bytes_of(x), operands.bytes_of(2), operands.bytes_of(grad)
        if asked is None or len(asked) < 2:
            passes, moved = 1, _sum_or_none([grad_bytes, x_bytes, weight_bytes])
        else:
            passes = asked[0] + asked[1]
            # a gradient of the input reads the weight and writes an input, a gradient of the weight the other way
            moved = _sum_or_none([grad_bytes, *([x_bytes, weight_bytes] * passes)])
        return Work(flops=passes * one_pass, bytes=moved, dtype=operands.dtype(grad), kind="convolution")

    return rule


def _input_gradient(operands: Operands) -> Work:
    """``cudnn_convolution_backward_input(input_size, grad_output, weight, …)`` of traces before torch 1.11."""
    grad, weight = operands.shape(1), operands.shape(2)
    if len(grad) != len(weight) or len(weight) < 3:
        raise UnknownError
    # of the result only the size list is recorded, as a value: without it the traffic counts what is read
    sizes = operands.integers(0, len(grad)) if operands.text(0) else ()
    written = _scaled(prod(sizes) if sizes else 0, operands.element_bytes(1))
    return Work(
        flops=2 * grad[0] * prod(grad[2:]) * prod(weight),
        bytes=_sum_or_none([operands.bytes_of(1), operands.bytes_of(2), written]),
        dtype=operands.dtype(1),
        kind="convolution",
    )


def _attention(*, heads_last: bool, causal: Sequence[int], backward: bool = False, absent: Sequence[int] = ()) -> _Rule:
    """Fused attention.

    Args:
        heads_last: Whether tensors are (batch, sequence, heads, features); otherwise (batch, heads, sequence, …).
        causal: Where the flag may stand, by version; the first that is one counts. A number is the kind of mask.
        backward: Whether the gradient of the output is the first argument and five products are done.
        absent: Arguments that must not be given: lengths of packed sequences, a sliding window.
    """
    first = int(backward)  # the query; key and value follow

    def rule(operands: Operands) -> Work:
        query, key, value = (_batch_heads_sequence(operands.shape(first + i), heads_last) for i in range(3))
        batch, heads, queries, features = query
        keys, value_features = key[2], value[3]
        if key[0] != batch or value[:3] != key[:3] or key[3] != features:
            raise UnknownError
        if any(_is_given(operands, position) for position in absent):
            raise UnknownError
        said = [text for text in map(operands.text, causal) if text in ("False", "True", "0", "1", "2")]
        if said and said[0] in ("False", "0"):
            pairs = queries * keys
        else:  # versions align the mask at the first or at the last key: the smaller count of both
            shorter = min(queries, keys)
            pairs = shorter * (shorter + 1) // 2
        forward = 2 * batch * heads * pairs * (features + value_features)
        again = 2 * batch * heads * pairs * (3 * features + 2 * value_features)
        tensors = [operands.bytes_of(first + i) for i in range(3)]
        output = _scaled(batch * heads * queries * value_features, operands.element_bytes(first))
        moved = [*tensors, *tensors, output, output] if backward else [*tensors, output]
        return Work(
            flops=again if backward else forward,
            bytes=_sum_or_none(moved),
            dtype=operands.dtype(first),
            kind="attention",
        )

    return rule


def _batch_heads_sequence(shape: Shape, heads_last: bool) -> Shape:
    batch, second, third, features = shape
    return (batch, third, second, features) if heads_last else (batch, second, third, features)


def _is_given(operands: Operands, position: int) -> bool:
    if operands.text(position) not in (None, "-1"):
        return True
    return position < len(operands) and bool(operands.shapes[position])


def _norm(
    *, reads: Sequence[int], writes: Sequence[int] = (), mask: int | None = None, masked: Sequence[int] = ()
) -> _Rule:
    """A normalization or the like, which passes over its tensors.

    Args:
        reads: Arguments that are read, if they are tensors.
        writes: Arguments whose size and type the outputs have, if they are tensors.
        mask: Where ``output_mask`` stands; what it leaves out is not written. All is written if it is not recorded.
        masked: For each place in the mask the argument of which that output has the size.
    """

    def rule(operands: Operands) -> Work:
        written = list(writes)
        if mask is not None:
            asked = operands.flags(mask) or (True,) * len(masked)
            written += [position for position, wanted in zip(masked, asked, strict=False) if wanted]
        tensors = [position for position in reads if operands.is_tensor(position)]
        if not tensors:
            raise UnknownError
        sizes = [operands.bytes_of(position) for position in [*tensors, *written]]
        return Work(
            flops=max(prod(operands.shape(position)) for position in tensors),
            bytes=_sum_or_none(sizes),
            dtype=operands.dtype(tensors[0]),
            kind="norm/reduction",
        )

    return rule


def _reduction(operands: Operands) -> Work:
    """Read everything; the output is not counted, since the dimensions that remain may be not recorded."""
    return Work(
        flops=prod(operands.shape(0)), bytes=operands.bytes_of(0), dtype=operands.dtype(), kind="norm/reduction"
    )


def _dropout(operands: Operands) -> Work:
    elements, size = prod(operands.shape(0)), operands.bytes_of(0)
    return Work(
        flops=elements,
        bytes=_sum_or_none([size, size, elements]),  # the mask is one byte per element
        dtype=operands.dtype(),
        kind="elementwise",
    )


def _pointwise(
    *, in_place: bool = False, element_bytes: int | None = None, divides: bool = False, reads_self: bool = True
) -> _Rule:
    """An operator on each element, with broadcasting.

    Args:
        in_place: The first argument is the output.
        element_bytes: Size of an element of the output, 1 for comparisons; otherwise the type follows the inputs.
        divides: The result of integers is a float.
        reads_self: Whether the first argument is read, too; False for ``copy_`` and ``fill_``.
    """

    def rule(operands: Operands) -> Work:
        tensors = [position for position in range(len(operands)) if operands.is_tensor(position)]
        if not tensors or (in_place and tensors[0] != 0):
            raise UnknownError
        out = operands.shape(0) if in_place else _broadcast([operands.shape(position) for position in tensors])
        size = element_bytes
        if size is None:
            size = operands.element_bytes(0) if in_place else _promoted_bytes(operands, tensors, divides)
        read = [operands.bytes_of(position) for position in tensors if reads_self or position != 0]
        return Work(
            flops=prod(out),
            bytes=_sum_or_none([*read, _scaled(prod(out), size)]) if operands.types else None,
            dtype=operands.dtype(tensors[0]),
            kind="elementwise",
        )

    return rule


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    """The shape that numpy's rule gives; raises UnknownError if the shapes do not fit."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise UnknownError from None


def _promoted_bytes(operands: Operands, tensors: Sequence[int], divides: bool) -> int | None:
    """Bytes per element of the result: the widest type, floats before integers; a zero-dimensional tensor yields."""
    strong = [position for position in tensors if operands.shape(position)] or list(tensors)
    floats = [position for position in strong if operands.type_name(position).startswith(_FLOATING)]
    sizes = [operands.element_bytes(position) for position in floats or strong]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        return None
    return 4 if divides and not floats else max(known)


_FLOATING = ("double", "float", "c10::")


def _copy(operands: Operands) -> Work:
    """``copy_(self, source)``: the source is broadcast; a copy computes nothing."""
    work = _pointwise(in_place=True, reads_self=False)(operands)
    return Work(flops=0, bytes=work.bytes, dtype=operands.dtype(1), kind="copy")


def _concatenation(operands: Operands) -> Work:
    """``cat(tensors, dim)``: the types of a list's elements are not recorded."""
    elements = sum(prod(shape) for shape in _tensor_list(operands, 0))
    if not elements:
        raise UnknownError
    return Work(flops=0, bytes=None, dtype=None, kind="copy")


def _tensor_list(operands: Operands, position: int) -> list[Shape]:
    recorded = operands.shapes[position]
    shapes = [as_shape(one) for one in recorded] if isinstance(recorded, list | tuple) else []
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) != len(shapes):
        raise UnknownError
    return known


def _over_lists(kind: KernelClass) -> _Rule:
    """An operator on lists of tensors; the types of their elements are not recorded, so the bytes are not known."""

    def rule(operands: Operands) -> Work:
        return Work(flops=sum(prod(shape) for shape in _tensor_list(operands, 0)), bytes=None, dtype=None, kind=kind)

    return rule


def _embedding(operands: Operands) -> Work:
    """``embedding(weight, indices, …)``: rows may be asked for repeatedly, so only what is written counts."""
    (_, features), indices = operands.shape(0), operands.shape(1)
    written = _scaled(prod(indices) * features, operands.element_bytes(0))
    return Work(flops=0, bytes=_sum_or_none([operands.bytes_of(1), written]), dtype=operands.dtype(), kind="embedding")


def _embedding_backward(operands: Operands) -> Work:
    """``embedding_dense_backward(grad, indices, num_weights, …)`` writes a dense gradient of the whole table."""
    grad = operands.shape(0)
    rows = operands.integers(2, 1)[0] if operands.text(2) else 0
    written = _scaled(rows * grad[-1], operands.element_bytes(0))
    return Work(
        flops=prod(grad),
        bytes=_sum_or_none([operands.bytes_of(0), operands.bytes_of(1), written]),
        dtype=operands.dtype(),
        kind="embedding",
    )


_UNARY = (
    "abs ceil clamp clamp_max clamp_min cos elu erf exp floor gelu hardsigmoid hardswish hardtanh leaky_relu log log1p "
    "log2 log_sigmoid_forward logit mish neg nan_to_num pow reciprocal relu round rsqrt sigmoid sign silu sin softplus "
    "sqrt square tanh threshold tril triu"
)
_BINARY = (
    "add addcdiv addcmul bitwise_and bitwise_or fmod gelu_backward hardswish_backward hardtanh_backward "
    "leaky_relu_backward lerp logical_and maximum minimum mul native_dropout_backward remainder rsub sigmoid_backward "
    "silu_backward softplus_backward sub tanh_backward threshold_backward where masked_fill"
)
_COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_not isnan isinf isfinite"
_FLOAT_RESULT = "div true_divide"
_FOREACH = "add_ sub_ mul_ div_ lerp_ addcmul_ addcdiv_ sqrt sqrt_ add mul div neg pow maximum_ zero_"

_OF_ATEN: Mapping[str, _Rule] = {
    "mm bmm _scaled_mm": _product(0, 1),
    "_int_mm": _product(0, 1, out_bytes=4),
    "addmm addmm_ baddbmm baddbmm_ _addmm_activation": _product(1, 2, bias=0),
    "mv dot vdot": _matrix_vector(0, 1),
    "addmv addmv_": _matrix_vector(1, 2, bias=0),
    # the order of the arguments is that of each operator's schema in native_functions.yaml
    "cudnn_convolution": _convolution(padding=2, stride=3, dilation=4, groups=5),
    "miopen_convolution miopen_depthwise_convolution mkldnn_convolution": _convolution(
        bias=2, padding=3, stride=4, dilation=5, groups=6
    ),
    "cudnn_convolution_relu miopen_convolution_relu": _convolution(bias=2, stride=3, padding=4, dilation=5, groups=6),
    "cudnn_convolution_transpose": _convolution(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    "miopen_convolution_transpose": _convolution(
        bias=2, padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "convolution_overrideable": _convolution(
        bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
    ),
    "_slow_conv2d_forward thnn_conv2d_forward slow_conv3d_forward": _convolution(
        bias=3, stride=4, padding=5, dilation=None
    ),
    "_conv_depthwise2d conv_depthwise3d slow_conv_dilated2d slow_conv_dilated3d": _convolution(
        bias=3, stride=4, padding=5, dilation=6
    ),
    "slow_conv_transpose2d slow_conv_transpose3d": _convolution(
        bias=3, stride=4, padding=5, output_padding=6, dilation=7, transposed=True
    ),
    "convolution_backward": _convolution_backward(0, 1, mask=10, transposed=7),
    "cudnn_convolution_backward": _convolution_backward(1, 0, mask=10, transposed=None),
    "miopen_convolution_backward": _convolution_backward(1, 0, mask=9, transposed=None),
    "cudnn_convolution_backward_input miopen_convolution_backward_input": _input_gradient,
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu": _attention(
        heads_last=False, causal=[4]
    ),
    "_scaled_dot_product_efficient_attention": _attention(heads_last=False, causal=[6]),
    "_scaled_dot_product_cudnn_attention": _attention(heads_last=False, causal=[6, 4]),
    "_scaled_dot_product_fused_attention_overrideable": _attention(heads_last=False, causal=[5]),
    "_flash_attention_forward": _attention(heads_last=True, causal=[8], absent=[3, 4, 11, 12]),
    "_efficient_attention_forward": _attention(heads_last=True, causal=[9], absent=[4, 5]),
    "_scaled_dot_product_flash_attention_backward": _attention(
        heads_last=False, causal=[11], backward=True, absent=[6, 7]
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(heads_last=False, causal=[6], backward=True),
    "_scaled_dot_product_efficient_attention_backward": _attention(heads_last=False, causal=[11], backward=True),
    "_scaled_dot_product_cudnn_attention_backward": _attention(
        heads_last=False, causal=[14], backward=True, absent=[9, 10]
    ),
    "_flash_attention_backward": _attention(heads_last=True, causal=[11], backward=True, absent=[6, 7]),
    "_efficient_attention_backward": _attention(heads_last=True, causal=[14], backward=True, absent=[6, 7]),
    "native_layer_norm": _norm(reads=[0, 2, 3], writes=[0]),
    "native_layer_norm_backward": _norm(reads=[0, 1, 3, 4, 5], mask=7, masked=[1, 5, 6]),
    "_fused_rms_norm": _norm(reads=[0, 2], writes=[0]),
    "_fused_rms_norm_backward": _norm(reads=[0, 1, 3, 4], mask=5, masked=[1, 4]),
    "native_batch_norm cudnn_batch_norm miopen_batch_norm": _norm(reads=[0, 1, 2], writes=[0]),
    "native_group_norm _native_batch_norm_legit _batch_norm_with_update": _norm(reads=[0, 1, 2], writes=[0]),
    "native_batch_norm_backward batch_norm_backward": _norm(reads=[0, 1, 2, 5, 6], mask=9, masked=[1, 2, 2]),
    "cudnn_batch_norm_backward miopen_batch_norm_backward": _norm(reads=[0, 1, 2, 5, 6], writes=[0, 2, 2]),
    "native_group_norm_backward": _norm(reads=[0, 1, 2, 3, 4], mask=9, masked=[1, 4, 4]),
    "_softmax _log_softmax cumsum": _norm(reads=[0], writes=[0]),
    "_softmax_backward_data _log_softmax_backward_data": _norm(reads=[0, 1], writes=[1]),
    "sum mean amax amin argmax argmin prod var std linalg_vector_norm": _reduction,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "native_dropout": _dropout,
    f"{_UNARY} {_BINARY}": _pointwise(),
    " ".join(f"{name}_" for name in f"{_UNARY} {_BINARY} {_FLOAT_RESULT}".split()): _pointwise(in_place=True),
    _FLOAT_RESULT: _pointwise(divides=True),
    _COMPARISONS: _pointwise(element_bytes=1),
    "fill_ zero_": _pointwise(in_place=True, reads_self=False),
    "copy_": _copy,
    "cat _cat": _concatenation,
    " ".join(f"_foreach_{name}" for name in _FOREACH.split()): _over_lists("elementwise"),
    "_foreach_copy_": _over_lists("copy"),
    "_foreach_norm": _over_lists("norm/reduction"),
    "_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_": _over_lists("optimizer"),
}
"""By the names of operators, without their namespace. What stands further down replaces what is above it."""
_RULES: Mapping[str, _Rule] = {
    **{f"aten::{name}": rule for names, rule in _OF_ATEN.items() for name in names.split()},
    "flash_attn::_flash_attn_forward": _attention(heads_last=True, causal=[5], absent=[6, 7]),
    "flash_attn::_flash_attn_backward": _attention(heads_last=True, causal=[11], backward=True, absent=[12, 13]),
}
