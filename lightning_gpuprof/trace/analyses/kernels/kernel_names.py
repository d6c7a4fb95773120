"""A kernel's class, input type and use of tensor cores, by its name and its operator's."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Protocol

from lightning_gpuprof.model.trace.kernels import KernelClass, KernelDtype

MATRIX_CLASSES: frozenset[KernelClass] = frozenset({"gemm", "convolution", "attention"})
"""Classes whose work tensor cores could do."""


_CHARACTERS = 1024
"""What a name says of its kernel is in its first characters; some templates go on for thousands."""

_CACHED = 1 << 14
"""Names whose answers are kept: to look at one takes 0.1 ms."""


class _Search(Protocol):
    def search(self, name: str, /) -> object: ...


class _Any:
    """Several expressions, whatever the case of the letters; ten times as fast on lower case as with IGNORECASE.

    They are compiled, 0.5 ms each, once a name is looked at.
    """

    def __init__(self, *alternatives: str) -> None:
        self._expression = "|".join(alternatives).lower()

    @cached_property
    def _search(self) -> Callable[[str], object]:
        return re.compile(self._expression).search

    def search(self, name: str) -> bool:
        """Whether one of them is in a name."""
        return self._search(name[:_CHARACTERS].lower()) is not None


_COMMUNICATION = _Any(
    r"nccl(?:Dev)?Kernel|\bnccl|rccl|nvshmem|\bmscclpp|\bmsccl",
    r"(?:one|two)_?shot_?all_?reduce|cross_device_reduce|multimem_(?:all|one|two)|quick_?reduce|deep_ep::",
)
_TRITON = re.compile(r"^triton_[a-z]{2,4}_")  # Inductor: poi(ntwise), red(uction), per(sistent reduction), tem(plate)…
_TRITON_TEMPLATE = re.compile(r"^triton_(?:tem|mm|bmm|flex)_")
_EMBEDDING = _Any(
    r"embedding|indexSelect|compute_grad_weight|krn_partial|sum_and_scatter|permute_pooled_embs|\bembs?_kernel",
    r"bounds_check_indices|linearize_index_kernel",  # fbgemm's look-up around its tables
)
_OPTIMIZER = _Any(
    r"(?:Adam|Adagrad|Adadelta|SGD|RMSprop|LAMB|LARS|Lion|Adafactor)\w*Functor|fused_?(?:adam|sgd|lamb|lion)",
    r"\b(?:lamb|adam|sgd)_(?:kernel|stage)|reduce_norm_lamb",
)
_ATTENTION = _Any(
    r"flash_(?:fwd|bwd|attn|attention)|flash::|flashattn|fmha|(?<![a-z])mha_|sdpa|fused_attn|AttentionKernel",
    r"(?<![a-z])_?attn_(?:fwd|bwd)|bwd_kernel_(?:dk_dv|dq|fuse)|bwd_preprocess|attention",
)
_ATTENTION_HELPER = _Any(
    r"bwd_dot_do_o|bwd_preprocess|convert_d[qkv]|splitkv_combine|bwd_postprocess|FlashAttnBwd(?:Pre|Post)process"
)
_CONVOLUTION_HELPER = _Any(
    r"im2col|col2im|vol2col|col2vol|compute\w*Offsets|winograd_nonfused::|generateWinograd|fft2d_|fft3d_",
    r"reduce_wgrad|scalePackedTensor|cutlass_cudnn\w*::Kernel<cutlass_cudnn\w*::reduction",
)
_LAYOUT_CHANGE = _Any(
    r"nchw\w*To\w*nhwc|nhwc\w*To\w*nchw|NCHW2|CNHW2|2NCHW|batched_transpose|tensorTransform|(?<!conv_)transpose_readWrite"
)
_CONVOLUTION = _Any(
    r"convol|conv[123]d|[_:]conv_|[_:]conv\d*\b|\bconv_|scudnn|\d+cudnn_|winograd|wgrad|dgrad|fprop",
    r"igemm_(?:fwd|bwd|wrw)|naive_conv|miopen\w*conv|cask_cudnn|bwd_weight|bwd_data|miopenSp3AsmConv|gridwise_conv",
)
_NORM_OR_REDUCTION = _Any(
    r"batch_?norm|layer_?norm|group_?norm|rms_?norm|instance_?norm|\bbn_(?:fw|bw)|bnorm|GammaBeta|Rowwise(?:Moments)",
    r"ComputeFusedParams|ComputeInternalGradients|ComputeGradientFusedParams|softmax|reduce_kernel|Welford|LpNormFunctor",
    r"lpnorm|nll_?loss|NLLCriterion|cross_entropy|cunn_|DeviceReduce|DeviceScan|DeviceSegmentedReduce|scan_(?:inner|outer)",
    r"(?:max|avg|average)_?pool|adaptive_?(?:max|avg|average)|pooling|weight_norm|reduction_prod_kernel|MIOpenReduc",
    r"reduce_all|segmented?_reduce|reduceSingle|\breduce(?:1|2)?_",
)
_GEMM_HELPER = _Any(
    r"splitK_?reduce|ReduceSplitK|split_k_reduce|reduce_1Block|epilogue::impl|Cijk\w*PostGSU|_PostGSU|zero_?splitk",
    r"cublas\w*::.*(?:scale|memset|transpose)_?kernel|amax_kernel_cublas",
)
_GEMM = _Any(
    r"(?<!fb)gem[mv]|cijk_|nvjet|cublas|cutlass|\bdot_kernel|magma_|wgmma|xmma|[hs]884|hmma|imma|matmul|tensile|rocblas|wvSplitK",
    r"LLMM1|mm_kernel|\bck::|_ZN2ck|tinygemm",
)
_COPY = _Any(
    r"copy|CatArray|memcpy|\btranspose|_transpose_|gather|scatter|index_elementwise|gpu_index_kernel|index_put|indexing",
    r"indexFunc|permute|\bflip_|roll_cuda|unfold|\btril|\btriu|index_copy|index_fill|masked_select|masked_scatter|recat",
    r"SubTensorOpWithCast|split_with_sizes|chunk_cat|to_dense_representation|expand_into_jagged|jagged",
)
_ELEMENTWISE = _Any(
    r"elementwise|pointwise|multi_tensor_apply|Functor|dropout|distribution_|arange|upsample|fill|memset|masked_scale",
    r"op_tensor|OpTensor|SubTensorOp|random|range_cuda|linspace|relu|gelu|sigmoid|clamp|activation",
    r"thrust::.*(?:transform|for_each)|glu_|bernoulli|mul_?kernel|add_?kernel|amp_update_scale|tensor_kernel_scalar|interp",
)
_BY_NAME: Sequence[tuple[KernelClass, _Search]] = (
    # the first match wins: what a name says about a whole operation goes before what it says about a part of it
    ("triton", _TRITON),
    ("communication", _COMMUNICATION),
    ("embedding", _EMBEDDING),
    ("optimizer", _OPTIMIZER),
    ("attention", _ATTENTION),
    ("copy", _LAYOUT_CHANGE),
    ("convolution", _CONVOLUTION_HELPER),
    ("norm/reduction", _Any(r"batch_?norm|\bbn_(?:fw|bw)")),
    ("convolution", _CONVOLUTION),
    ("gemm", _GEMM_HELPER),
    ("norm/reduction", _Any(r"softmax|layer_?norm|GammaBeta|reduce_kernel|multi_tensor_apply\w*.*LpNormFunctor")),
    ("gemm", _GEMM),
    ("norm/reduction", _NORM_OR_REDUCTION),
    ("copy", _COPY),
    ("elementwise", _ELEMENTWISE),
)
_BY_OPERATOR: Sequence[tuple[KernelClass, _Search]] = (
    ("communication", _Any(r"^c10d::|nccl:|record_param_comms|all_?reduce|all_?gather|reduce_scatter|all_?to_?all")),
    ("optimizer", _Any(r"^Optimizer\.step#|_fused_(?:adam|adamw|sgd|adagrad)_")),
    ("attention", _Any(r"scaled_dot_product|flash_att|_attention_(?:forward|backward)|flash_attn|_fused_sdp")),
    ("embedding", _Any(r"embedding")),
    ("convolution", _Any(r"conv(?:olution|[123]d|_transpose|_depthwise|_dilated|_nested|_tbc)|ConvolutionBackward")),
    (
        "gemm",
        _Any(
            r"::(?:add|badd)?b?mm\b|(?:mm|Linear|Mv)Backward|::addmm_",
            r"::(?:linear|matmul|mv|addmv|dot|_scaled_mm|_int_mm|einsum)\b",
        ),
    ),
    (
        "norm/reduction",
        _Any(
            r"_norm\b|_norm_|NormBackward|softmax|::(?:sum|mean|var|std|amax|argmax|max|norm|cumsum|topk)\b|loss|pool"
        ),
    ),
    ("copy", _Any(r"::(?:copy_|cat|_cat|clone|contiguous|_to_copy|index|index_select|gather|stack|repeat)\b")),
    ("elementwise", _Any(r"::(?:add|sub|mul|div|fill|zero|relu|gelu|silu|where|clamp|sqrt|exp|_foreach\w*|pow)_?\b")),
)
_PARTS_OF_AN_OPTIMIZER: frozenset[KernelClass] = frozenset({"elementwise", "copy", "norm/reduction", "other"})


def kernel_class(name: str, operator: str | None = None) -> KernelClass:
    """Class of a kernel by its name, and by the operator that launched it where the name is ambiguous.

    The operator decides in three cases: a matrix multiplication inside a convolution or an attention belongs to that;
    a pointwise kernel inside an optimizer's step, or inside an operator such as ``aten::_fused_adamw_``, belongs to
    the optimizer; and a name that says nothing takes the class of its operator. A change of memory layout (NCHW to
    NHWC) is a ``copy``, also inside a convolution. Pooling is a ``norm/reduction``. A kernel that Inductor wrote is
    ``triton`` whatever it computes; one written by hand in Triton has a free name and is taken by that name.

    Args:
        name: The kernel's name as the trace has it, demangled or not.
        operator: Name of the launching operator, such as ``aten::convolution_backward``, or of an annotation such as
            ``Optimizer.step#AdamW.step``; None if it is not known.

    Returns:
        The class; ``other`` if neither name is known.
    """
    by_name = _class_by_name(name)
    by_operator = "other" if operator is None else _class_by_operator(operator)
    if by_operator == "optimizer" and by_name in _PARTS_OF_AN_OPTIMIZER:
        return "optimizer"
    if by_name == "gemm" and by_operator in ("convolution", "attention"):
        return by_operator
    return by_operator if by_name == "other" else by_name


@lru_cache(maxsize=_CACHED)
def _class_by_name(name: str) -> KernelClass:
    return _first(_BY_NAME, name)


@lru_cache(maxsize=_CACHED)
def _class_by_operator(operator: str) -> KernelClass:
    return _first(_BY_OPERATOR, operator)


def _first(patterns: Sequence[tuple[KernelClass, _Search]], name: str) -> KernelClass:
    return next((found for found, pattern in patterns if pattern.search(name)), "other")


def does_matrix_work(name: str, operator: str | None = None) -> bool:
    """Whether a kernel multiplies matrices, i.e. whether it can be asked about tensor cores.

    These are the kernels of the :data:`MATRIX_CLASSES` without their helpers, which only prepare or gather (im2col,
    offsets, the transforms around a Winograd convolution, the sum after split-K), and Inductor's template kernels.
    The share of tensor cores is the time of these kernels by the answer of :func:`uses_tensor_cores`: yes, no and
    unknown sum to their time; kernels for which this is False are in none of the three.

    Args:
        name: The kernel's name.
        operator: Name of the launching operator, None if it is not known.
    """
    if _TRITON.search(name):
        return _TRITON_TEMPLATE.search(name) is not None
    if kernel_class(name, operator) not in MATRIX_CLASSES:
        return False
    return not _is_helper(name)


@lru_cache(maxsize=_CACHED)
def _is_helper(name: str) -> bool:
    return any(helper.search(name) for helper in (_CONVOLUTION_HELPER, _GEMM_HELPER, _ATTENTION_HELPER))


_CUDA_CORES = _Any(
    # FFMA and HFMA2 are the multiply-add instructions of the CUDA cores
    r"simt|ffma|hfma2|scudnn|sgemm|(?:volta|turing|pascal)_(?:fp16_)?[hd]gemm|[cz]gemm|maxwell_|magma_|gem[mv]k1_kernel",
    r"gemv|\bdot_kernel|gemmSN_|(?:im|ex)plicit_convolve|(?:dgrad|wgrad)\w*_engine|wgrad_alg\d|dgrad2d_|wgrad2d_",
    r"naive_conv|conv_?depthwise|depthwise|_dw_|Sp3AsmConv|MIOpenConvUni|gcnAsmConv|grouped_direct|cf32",
    # memory-efficient attention on chips whose tensor cores lack the type
    r"fmha_cutlass[FB]_\w*_sm50|fmha_cutlass[FB]_f32_\w*_sm7\d",
)
_TENSOR_CORES = _Any(
    # shapes of the instructions: m8n8k4 of Volta (884), m16n8k8 (1688), m16n8k16 (16816), m16n16k16 of WMMA (161616)
    r"[hidqg]mma|wmma|tcgen05|[hsdi]884|[his]1688|[a-z]16816|i8816|i16832|161616|(?<!Sub)tensorop|tensor\d+x\d+",
    r"sm(?:8\d|9\d|1\d\d)_xmma_\w*(?:tf32|f16f16|bf16bf16|e4m3|e5m2|i8i8|f64f64)|sm(?:9|1\d)\da?_|nvjet",
    r"flash_(?:fwd|bwd)|flash::|fmha|flashattn|device_gemm_sm(?:9|1\d)\d",
    # AMD: the matrix instructions (MFMA, XDL in Composable Kernel's words, gtcx in MIOpen's) and Tensile's MI field
    r"mfma|xdl|_gtcx\d?_|cijk_\w*_MI\d",
)


@lru_cache(maxsize=_CACHED)
def uses_tensor_cores(name: str) -> bool | None:
    """Whether a kernel's name proves that it ran on tensor cores (AMD: matrix cores).

    Ask only about kernels for which :func:`does_matrix_work` is True: the name of any other says nothing.

    Returns:
        True if the name contains a tensor-core instruction, or a family that has no other variant (nvjet, Hopper's and
        Blackwell's cuBLAS and cuDNN, FlashAttention); False if it names the CUDA cores (sgemm, SIMT, FFMA, gemv,
        cuDNN's direct convolutions); None if it says neither, as all of Triton's do.
    """
    if _TRITON.search(name):
        return None
    if _CUDA_CORES.search(name):
        return False
    return True if _TENSOR_CORES.search(name) else None


# cuBLAS 12: the letters of the types, the first one of an input, e.g. nvjet_tst (bf16) and nvjet_qqtst (fp8 to bf16)
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,4}_")
_NVJET_DTYPES: dict[str, KernelDtype] = {"h": "fp16", "t": "bf16", "q": "fp8"}
# the letters of the two inputs, the accumulator… after the order of the indices, e.g. Cijk_Alik_Bljk_HHS_BH
_TENSILE = re.compile(r"Cijk_[A-Za-z]+_[A-Za-z]+_(4xi8|I8|F8|B8|[HBSDX])(?![a-z])")
_TENSILE_DTYPES: dict[str, KernelDtype] = {
    "4xi8": "int8",
    "I8": "int8",
    "F8": "fp8",
    "B8": "fp8",
    "H": "fp16",
    "B": "bf16",
    "S": "fp32",
    "D": "fp64",
    "X": "tf32",
}
_NAIVE_CONVOLUTION = re.compile(r"naive_conv_\w*?_(half|float|ushort|int8_t)_")
_NAIVE_DTYPES: dict[str, KernelDtype] = {"half": "fp16", "float": "fp32", "ushort": "bf16", "int8_t": "int8"}
_BY_TOKEN: Sequence[tuple[KernelDtype, _Any]] = (
    # inputs are narrower than what they are summed in, so the narrowest in the name is the input; one kernel
    # reads fp32 and computes in tf32, and says both
    ("fp8", _Any(r"e4m3|e5m2|float8|(?<![a-z])fp8")),
    ("int8", _Any(r"i8816|i16832|imma|i8i8|(?<!Sum_)int8(?!_t)|<signed char|tensorop_s8")),
    ("tf32", _Any(r"tf32|tfloat32")),
    ("bf16", _Any(r"bf16|bfloat16")),
    ("fp16", _Any(r"(?<![a-z])fp?16|f16f16|(?<![a-z0-9]_)half(?:\b|_t|2)|[hH]884|h1688|h16816|[^a-z]hgemm|hfma2")),
    ("tf32", _Any(r"s1688(?:gemm|fprop|dgrad|wgrad)")),  # cutlass_80_tensorop_s1688gemm: no other type is named
    ("fp64", _Any(r"(?<![a-z])f64|d884|[^a-z]dgemm|(?<!optional)[<,]\s?double\b|lambda\(double|_double\b")),
    ("fp32", _Any(r"fp?32|[^a-z]sgemm|scudnn|\bfloat\b|_float\b|[^a-z]g?cgemm|sgemmEx")),
)


@lru_cache(maxsize=_CACHED)
def kernel_dtype(name: str) -> KernelDtype | None:
    """Type of a kernel's inputs as far as its name says.

    For a matrix multiplication this is the type that the multiplication is done in: one that reads fp32 and rounds
    it to TF32 is ``tf32``. A pointwise kernel that converts is named by its narrower type.

    Returns:
        None if the name does not say, or says a type that is none of these (int64, bool).
    """
    if _TRITON.search(name):
        return None  # its name lists operators, not types
    if nvjet := _NVJET.search(name):
        return _NVJET_DTYPES.get(nvjet[1])
    if tensile := _TENSILE.search(name):
        return _TENSILE_DTYPES[tensile[1]]
    if naive := _NAIVE_CONVOLUTION.search(name):
        return _NAIVE_DTYPES[naive[1]]
    typed = name.split(">(", 1)[0]  # after it come the arguments, whose types are pointers and scalars of all kinds
    return next((dtype for dtype, pattern in _BY_TOKEN if pattern.search(typed)), None)
