"""Faults of a device's kernels: what is wrong in them, how large it is drawn, and their twins without it."""

from __future__ import annotations

from random import Random

from truths.gpu_runs import GpuRun, Program
from truths.gpu_steps import (
    BF16_GEMM,
    BYTES_PER_S,
    FILLS,
    FLOPS,
    FP32_GEMM,
    POINTWISE,
    TF32_GEMM,
    Step,
    Work,
    busy,
    gemm,
    update,
)

_CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
_TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(float)"
_SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(int)"
_FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>(Flash_fwd_params)"


def healthy(random: Random, faulty: bool) -> Program:
    """Nothing is wrong; nothing can be planted either."""
    forward, backward = busy(random)
    return Program(step=Step(forward=forward, backward=backward, update=update))


def fp32_products(random: Random, faulty: bool) -> Program:
    """Products in fp32 with TF32 switched off; the twin has it on."""
    forward, backward = busy(random, name=FP32_GEMM if faulty else TF32_GEMM, size=2048 if faulty else 4096)
    return Program(
        step=Step(forward=forward, backward=backward, update=update),
        conditions={
            "trainer.precision": "32-true",
            "flags.float32_matmul_precision": "highest" if faulty else "high",
        },
    )


def transposed_images(random: Random, faulty: bool) -> Program:
    """Convolutions change the layout of what they are given, and back; the twin's tensors are channels-last."""
    count, us = random.randint(20, 40), random.uniform(150.0, 400.0)
    change_us = us * random.uniform(0.25, 0.45)

    def convolutions(passes: int) -> Work:
        def work(run: GpuRun) -> None:
            for _ in range(passes * count):
                if faulty:
                    run.kernel(change_us, op="aten::cudnn_convolution", name=_TO_NHWC, geometry=FILLS)
                run.kernel(us, op="aten::cudnn_convolution", name=_CONVOLUTION, geometry=FILLS)

        return work

    return Program(
        step=Step(forward=convolutions(1), backward=convolutions(2), update=update),
        conditions={
            "trainer.precision": "32-true",
            "model.convolutions": count,
            "model.channels_last_convolutions": 0 if faulty else count,
        },
    )


def attention_in_pieces(random: Random, faulty: bool) -> Program:
    """Attention writes its scores to memory; the twin's is one kernel."""
    blocks, length = random.randint(4, 8), random.choice([1024, 2048])
    batch, heads, width = 8, 12, 64
    scores = [batch, heads, length, length]
    wide_us = 2 * batch * heads * length**2 * 2 / BYTES_PER_S * 1e6
    product_us = 2.0 * batch * heads * length**2 * width / FLOPS[BF16_GEMM] * 1e6
    half = "c10::BFloat16"

    def attend(run: GpuRun) -> None:
        left, right = [batch * heads, length, width], [batch * heads, width, length]
        flat = [batch * heads, length, length]
        run.kernel(product_us, op="aten::bmm", name=BF16_GEMM, inputs=([left, right], [half] * 2), geometry=FILLS)
        run.kernel(wide_us, op="aten::div", name=POINTWISE, inputs=([scores, []], [half, "double"]), geometry=FILLS)
        run.kernel(wide_us, op="aten::_softmax", name=_SOFTMAX, inputs=([scores], [half]), geometry=FILLS)
        run.kernel(product_us, op="aten::bmm", name=BF16_GEMM, inputs=([flat, left], [half] * 2), geometry=FILLS)

    def fused(run: GpuRun) -> None:
        said = ([[batch, heads, length, width]] * 3, [half] * 3)
        op = "aten::_scaled_dot_product_flash_attention"
        run.kernel(2.2 * product_us, op=op, name=_FLASH, inputs=said, geometry=FILLS)

    def transformer(passes: int) -> Work:
        def work(run: GpuRun) -> None:
            for _ in range(passes * blocks):
                (attend if faulty else fused)(run)
                gemm(run, 2048)
                gemm(run, 2048)

        return work

    return Program(step=Step(forward=transformer(1), backward=transformer(2), update=update))
