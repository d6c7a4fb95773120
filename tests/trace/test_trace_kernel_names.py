"""From the names of kernels, as real traces have them, to their class, input type and use of tensor cores."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from recorded_traces import NAMES, recorded_trace

from lightning_gpuprof.model.trace.kernels import KernelClass, KernelDtype
from lightning_gpuprof.trace.analyses.kernels.kernel_names import (
    MATRIX_CLASSES,
    does_matrix_work,
    kernel_class,
    kernel_dtype,
    uses_tensor_cores,
)
from lightning_gpuprof.trace.reader import Trace

NATIVE = "void at::native::"
VECTORIZED = NATIVE + "vectorized_elementwise_kernel<4, at::native::"
FOREACH = NATIVE + "(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"

# class, input type, what it runs on; below them names of kernels
MATRIX_KERNELS = """\
gemm, fp32, other units
    volta_sgemm_64x64_nt
    volta_sgemm_32x32_sliced1x4_nt
    maxwell_sgemm_128x64_nn
    ampere_sgemm_128x32_nn
    ampere_gcgemm_64x64_nt
    sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4
    void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false>(int)
    std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(int)
    void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)
    void dot_kernel<float, 128, 0, cublasDotParams<float const> >(int)
    void magma_sgemmEx_kernel<float, float, float, true, false, 6, 4, 6, 3, 4>(int)
    void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(x::Params)
gemm, fp64, other units
    volta_dgemm_64x64_nn
gemm, fp16, tensor cores
    volta_h884gemm_128x64_ldg8_nn
    volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn
    turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn
    ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn
    nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNN
    void cutlass::Kernel<cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2>(x::Params)
    Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SE_1LDSB0
gemm, bf16, tensor cores
    ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn
    sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute__5x_cublas
    nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT
    void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(x::Params)
    void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_64x1>(x::Params)
    Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN
gemm, tf32, tensor cores
    sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8
    void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(x::Params)
gemm, fp64, tensor cores
    sm80_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16_stage4_tensor8x8x4
gemm, fp8, tensor cores
    sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128_execute__5x_cublas
    nvjet_sm100_qqtst_128x256_128x4_2x1_2cta_v_bz_TNT
    Cijk_Alik_Bljk_F8F8S_BH_MT128x128x64_MI16x16x1_SN
gemm, int8, tensor cores
    sm89_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize128x128x64_stage3_imma
    void cutlass::Kernel2<cutlass_80_tensorop_i16832gemm_s8_128x256_64x3_tn_align16>(x::Params)
gemm, no type, tensor cores
    nvjet_sss_64x64_32x8_1x1_h_bz_NNN
gemm, bf16, other units
    void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 128, 16>
gemm, fp32, tensor cores
    Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0
gemm, fp64, unknown units
    Cijk_Ailk_Bljk_DB_MT32x32x8_SE_TT4_4
convolution, fp32, other units
    volta_scudnn_128x64_relu_interior_nn_v1
    cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
    void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false>(int)
    void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)
    void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)
    NATIVE (anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(int)
convolution, fp16, tensor cores
    turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1
    sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32
convolution, tf32, tensor cores
    sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_g1_tensor16x8x8
    _ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS_10tfloat32_tENS6_4warp11MmaTensorOpI
convolution, bf16, tensor cores
    void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(x)
    igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8_ws1x1_wr1x1
convolution, fp16, other units
    naive_conv_ab_nonpacked_fwd_nchw_half_double_half
convolution, no type, tensor cores
    _ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdlS8_
attention, bf16, tensor cores
    void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false,\
 cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)
    fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)
attention, fp32, other units
    fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<float>)
attention, fp16, tensor cores
    cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x128x64_4x1x1
attention, no type, unknown units
    attn_fwd
triton, no type, unknown units
    triton_tem_fused_mm_3
"""
OTHER_KERNELS = """\
communication, fp32
    ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)
communication, no type
    ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)
    ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)
gemm, fp32
    void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true>(int)
    void epilogue::impl::globalKernel<float, float, float, true, true>(int)
convolution, fp32
    void cudnn::cnn::im2col4d_kernel<float, long>(int)
    void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)
convolution, no type
    void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)
attention, fp16
    void pytorch_flash::flash_bwd_dot_do_o_kernel<true, cutlass::half_t>(int)
copy, fp32
    void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(int)
    NATIVE (anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)
copy, no type
    batched_transpose_16x32_half
    transpose_CNHW2NCHW_V2_2D_WG_off64
    SubTensorOpWithCastTensor1d
    NATIVE unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>
    NATIVE index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<x> >(int)
    void fbgemm_gpu::permute_2D_lengths_kernel<int>(int)
copy, bf16
    VECTORIZED bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}>(int)
elementwise, fp32
    VECTORIZED CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)
    VECTORIZED FillFunctor<float>, std::array<char*, 1ul> >(int)
    NATIVE (anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1>(int)
elementwise, fp16
    VECTORIZED CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3> >(int)
elementwise, fp64
    VECTORIZED CUDAFunctor_add<double>, at::detail::Array<char*, 3> >(int)
elementwise, no type
    VECTORIZED CUDAFunctor_add<long>, at::detail::Array<char*, 3> >(int)
elementwise, bf16
    VECTORIZED BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, MulFunctor<float> > >
norm/reduction, fp32
    NATIVE reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >
    void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true>(float*)
    NATIVE (anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)
    void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)
    NATIVE (anonymous namespace)::max_pool_backward_nchw<float, float>(int)
    FOREACH TensorListMetadata<1>, at::native::LpNormFunctor<float, 2, float> >(int)
norm/reduction, bf16
    NATIVE (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(int)
norm/reduction, no type
    MIOpenBatchNormFwdTrainSpatial
optimizer, fp32
    FOREACH FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >(int)
    void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)
embedding, bf16
    NATIVE (anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>(int)
embedding, fp32
    void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float>(int)
triton, no type
    triton_poi_fused__unsafe_view_mul_silu_2
    triton_red_fused_add_mean_mul_pow_rsqrt_0
other, no type
    at::cuda::(anonymous namespace)::spin_kernel(long)
other, fp32
    my_own_kernel(float*)
"""
_PREFIXES = {"NATIVE ": NATIVE, "VECTORIZED ": VECTORIZED, "FOREACH ": FOREACH}
_UNITS = {"tensor cores": True, "other units": False, "unknown units": None}


def rows(text: str) -> Iterator[tuple[Any, ...]]:
    """Name, class, input type and what a kernel is known to run on, as far as the heads above the names say them."""
    said: list[Any] = []
    for line in text.splitlines():
        if not line.startswith(" "):
            kind, dtype, *units = line.split(", ")
            said = [kind, None if dtype == "no type" else dtype, *(_UNITS[one] for one in units)]
            continue
        name = line.strip()
        for short, whole in _PREFIXES.items():
            name = whole + name.removeprefix(short) if name.startswith(short) else name
        yield name, *said


@pytest.mark.parametrize(("name", "expected", "dtype", "tensor_cores"), rows(MATRIX_KERNELS))
def test_kernels_of_matrix_work(
    name: str, expected: KernelClass, dtype: KernelDtype | None, tensor_cores: bool | None
) -> None:
    assert kernel_class(name) == expected
    assert kernel_dtype(name) == dtype
    assert does_matrix_work(name)
    assert uses_tensor_cores(name) is tensor_cores


@pytest.mark.parametrize(("name", "expected", "dtype"), rows(OTHER_KERNELS))
def test_kernels_without_matrix_work(name: str, expected: KernelClass, dtype: KernelDtype | None) -> None:
    assert kernel_class(name) == expected
    assert kernel_dtype(name) == dtype
    assert not does_matrix_work(name)


@pytest.mark.parametrize(
    ("name", "operator", "expected"),
    [
        ("volta_sgemm_64x64_nt", "aten::cudnn_convolution", "convolution"),
        ("volta_sgemm_64x64_nt", "ConvolutionBackward0", "convolution"),
        ("volta_sgemm_64x64_nt", "aten::mm", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "aten::_scaled_dot_product_flash_attention", "attention"),
        (VECTORIZED + "CUDAFunctor_add<float> >", "Optimizer.step#AdamW.step", "optimizer"),
        (FOREACH + "TensorListMetadata<2>, BinaryOpListAlphaFunctor<float> >", "Optimizer.step#SGD.step", "optimizer"),
        (FOREACH + "TensorListMetadata<2>, BinaryOpListAlphaFunctor<float> >", "aten::_foreach_add_", "elementwise"),
        ("volta_sgemm_64x64_nt", "Optimizer.step#Shampoo.step", "gemm"),
        (NATIVE + "reduce_kernel<512, 1>", "aten::convolution_backward", "norm/reduction"),
        ("bwd_kernel_dk_dv", "aten::_flash_attention_backward", "attention"),
        ("a_kernel_nobody_knows", "aten::embedding", "embedding"),
        ("a_kernel_nobody_knows", "aten::convolution_backward", "convolution"),
        ("a_kernel_nobody_knows", "aten::addmm", "gemm"),
        ("a_kernel_nobody_knows", "c10d::allreduce_", "communication"),
        ("a_kernel_nobody_knows", "CudnnBatchNormBackward0", "norm/reduction"),
        ("a_kernel_nobody_knows", "aten::to", "other"),
        ("triton_poi_fused_add_0", "Optimizer.step#AdamW.step", "triton"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "Optimizer.step#AdamW.step", "communication"),
    ],
)
def test_the_operator_decides_where_the_name_is_ambiguous(name: str, operator: str, expected: KernelClass) -> None:
    assert kernel_class(name, operator) == expected


def test_the_parts_around_a_convolution_by_operator_do_no_matrix_work() -> None:
    assert not does_matrix_work("void splitKreduce_kernel<float, float>(int)", "aten::convolution_backward")
    assert does_matrix_work("a_kernel_nobody_knows", "aten::mm")
    assert uses_tensor_cores("a_kernel_nobody_knows") is None


def time_by_kernel_and_operator(trace: Trace) -> dict[tuple[str, str | None], float]:
    """Kernel time of a trace, by the operator that has the kernel's external id."""
    operators = zip(trace.cpu_op.external_id.tolist(), trace.cpu_op.name.tolist(), strict=True)
    operator_of = {external_id: trace.names[name] for external_id, name in operators}
    time_us: dict[tuple[str, str | None], float] = defaultdict(float)
    kernels = trace.kernel
    for name, external_id, duration_ns in zip(kernels.name, kernels.external_id, kernels.duration_ns, strict=True):
        if "spin_kernel" not in trace.names[name]:  # torch.cuda._sleep does no work
            time_us[trace.names[name], operator_of.get(int(external_id))] += duration_ns / 1e3
    return time_us


@pytest.mark.skipif(not NAMES, reason="no recorded traces beside the repository (../shared/traces)")
@pytest.mark.parametrize("file", NAMES or ["none"])
def test_nearly_all_kernel_time_of_a_real_trace_has_a_class(file: str) -> None:
    time_us = time_by_kernel_and_operator(recorded_trace(file).trace)
    by_class: dict[str, float] = defaultdict(float)
    by_tensor_cores: dict[bool | None, float] = defaultdict(float)
    for (name, operator), duration_us in time_us.items():
        by_class[kernel_class(name, operator)] += duration_us
        if does_matrix_work(name, operator):
            by_tensor_cores[uses_tensor_cores(name)] += duration_us
    assert by_class["other"] <= 0.05 * sum(time_us.values())
    matrix_us = sum(by_tensor_cores.values())
    assert matrix_us <= sum(by_class[found] for found in (*MATRIX_CLASSES, "triton")) + 1e-3
    assert by_tensor_cores[None] <= 0.05 * matrix_us or file.startswith(("a100_8rank", "mi300_torch", "v100_dlrm"))
    if file.startswith(("v100", "gp100", "rtx2080ti")):
        assert by_tensor_cores[True] == 0, "these runs are in fp32, on chips without TF32"
    if file.startswith(("h100", "mi2")):
        assert by_tensor_cores[True] > 0.95 * matrix_us, "these runs are in bf16"
