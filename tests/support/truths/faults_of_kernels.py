"""Faults of a device's kernels: what is wrong in them, how large it is drawn, and their twins without it."""

from collections.abc import Mapping
from random import Random

from truths.gpu_runs import A100, GpuRun, Program
from truths.gpu_steps import (
    BF16_GEMM,
    BYTES_PER_S,
    FILLS,
    FLOPS,
    FP32_GEMM,
    POINTWISE,
    TF32_GEMM,
    VOLTA_FP16_GEMM,
    VOLTA_FP32_GEMM,
    Step,
    Work,
    busy,
    gemm,
    layers,
    pointwise,
    repeated,
    update,
)

_CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
_TO_NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(float)"
_SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(int)"
_FLASH = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128>>(Flash_fwd_params)"
_MULTIPROCESSORS = 108
_BLOCKS_EACH = 2
"""Of 256 threads with 128 registers, by the registers of an A100's multiprocessor."""
_COPY = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)"
_PEAK_FLOPS = 312e12
_V100: Mapping[str, object] = {
    **A100,
    "name": "Tesla V100-SXM2-32GB",
    "computeMajor": 7,
    "totalGlobalMem": 34_089_730_048,
    "sharedMemPerMultiprocessor": 98304,
    "numSms": 80,
}


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


def fp32_on_volta(random: Random, faulty: bool) -> Program:
    """Products in fp32 on a GPU without TF32; the twin's are in half precision."""
    name, size = (VOLTA_FP32_GEMM, 2048) if faulty else (VOLTA_FP16_GEMM, 4096)
    forward, backward = busy(random, name=name, size=size)
    return Program(
        step=Step(forward=forward, backward=backward, update=update),
        conditions={
            "device.name": str(_V100["name"]),
            "device.capability": "7.0",
            "trainer.precision": "32-true" if faulty else "16-mixed",
        },
        document={"deviceProperties": [_V100]},
    )


def transposed_images(random: Random, faulty: bool) -> Program:
    """Convolutions change the layout of what they are given, and back; the twin's tensors are channels-last."""
    count, us = random.randint(20, 40), random.uniform(150.0, 400.0)
    change_us = us * random.uniform(0.25, 0.45)

    def convolution(run: GpuRun) -> None:
        if faulty:
            run.kernel(change_us, op="aten::cudnn_convolution", name=_TO_NHWC, geometry=FILLS)
        run.kernel(us, op="aten::cudnn_convolution", name=_CONVOLUTION, geometry=FILLS)

    return Program(
        step=repeated(convolution, count),
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

    def block(run: GpuRun) -> None:
        (attend if faulty else fused)(run)
        gemm(run, 2048)
        gemm(run, 2048)

    return Program(step=repeated(block, blocks))


def _product(
    run: GpuRun,
    sizes: tuple[int, int, int],
    *,
    reached: float = 0.6,
    geometry: Mapping[str, object] = FILLS,
) -> None:
    """A bf16 product of rows, inner and columns, at a share of the device's peak."""
    rows, inner, columns = sizes
    run.kernel(
        2.0 * rows * inner * columns / (reached * _PEAK_FLOPS) * 1e6,
        host_us=11.0,
        op="aten::mm",
        name=BF16_GEMM,
        inputs=([[rows, inner], [inner, columns]], ["c10::BFloat16"] * 2),
        geometry=geometry,
    )


def odd_sizes(random: Random, faulty: bool) -> Program:
    """The vocabulary's size is odd, and products with it are slow; the twin's is padded."""
    forward, backward = busy(random)
    columns = random.choice([50257, 32001, 30523])
    padded = -(-columns // 64) * 64
    reached = random.uniform(0.15, 0.25)

    def head(work: Work, passes: int) -> Work:
        def run_it(run: GpuRun) -> None:
            work(run)
            for _ in range(passes * 3):
                sizes = (2048, 1024, columns if faulty else padded)
                _product(run, sizes, reached=reached if faulty else 0.6)

        return run_it

    return Program(step=Step(forward=head(forward, 1), backward=head(backward, 2), update=update))


def _alike(count: int, us: float, geometry: Mapping[str, object]) -> Program:
    """Products that are all launched with the same blocks."""

    def product(run: GpuRun) -> None:
        run.kernel(us, host_us=9.0, op="aten::mm", name=BF16_GEMM, geometry=geometry)

    return Program(step=repeated(product, count))


def few_blocks(random: Random, faulty: bool) -> Program:
    """Kernels have blocks for a fifth of the multiprocessors; the twin's have enough for all."""
    count, us = random.randint(60, 90), random.uniform(60.0, 120.0)
    geometry = FILLS | {"grid": [random.randint(12, 30), 1, 1]} if faulty else FILLS
    return _alike(count, us, geometry)


def uneven_waves(random: Random, faulty: bool) -> Program:
    """Products have a few blocks more than the device holds at a time; the twin's make whole waves."""
    count, us = random.randint(40, 60), random.uniform(150.0, 300.0)
    at_a_time = _MULTIPROCESSORS * _BLOCKS_EACH
    blocks = at_a_time + random.randint(10, 60) if faulty else 12 * at_a_time
    geometry = FILLS | {"grid": [blocks, 1, 1], "registers per thread": 128}
    return _alike(count, us, geometry)


def pointwise_work(random: Random, faulty: bool) -> Program:
    """Most of the time goes to operators that only go through memory; the twin has few of them."""
    count = random.randint(8, 12)
    each = random.randint(6, 10) if faulty else 1
    elements = random.randint(60, 120) << 20

    us = 3 * 2 * elements / BYTES_PER_S * 1e6 if faulty else 20.0
    said = ([[elements]] * 2, ["c10::BFloat16"] * 2) if faulty else None

    def launch(run: GpuRun) -> None:
        gemm(run, 4096 if not faulty else 2048)
        for _ in range(each):
            run.kernel(us, host_us=9.0, op="aten::add", name=POINTWISE, inputs=said, geometry=FILLS)

    return Program(step=repeated(launch, count))


def untried_convolutions(random: Random, faulty: bool) -> Program:
    """CuDNN may not try its algorithms, though no shape changes; the twin's may."""
    count, us = random.randint(20, 40), random.uniform(300.0, 500.0)
    batch = random.choice([32, 64])
    said = ([[batch, 256, 56, 56], [256, 256, 3, 3]], ["float"] * 2)

    def convolution(run: GpuRun) -> None:
        run.kernel(us, op="aten::cudnn_convolution", name=_CONVOLUTION, inputs=said, geometry=FILLS)

    return Program(
        step=repeated(convolution, count),
        conditions={
            "trainer.precision": "32-true",
            "model.convolutions": count,
            "model.channels_last_convolutions": count,
            "flags.cudnn_benchmark": not faulty,
            "flags.cudnn_deterministic": False,
        },
    )


_INSPECTED = (0, 1, 2, 3, 5, 8, 12, 18, 27, 41, 62, 93)
"""Batches that a run of 120 steps inspects."""


def new_shapes(random: Random, faulty: bool) -> Program:
    """Each batch is of another size, and cuDNN times its algorithms for some convolutions; the twin does not."""
    count, us, timed = random.randint(20, 30), random.uniform(300.0, 500.0), random.randint(2, 4)
    sizes = random.sample(range(160, 512), 120)

    def convolution(run: GpuRun) -> None:
        run.kernel(us, op="aten::conv2d", name=_CONVOLUTION, geometry=FILLS)

    def forward(run: GpuRun) -> None:
        for at in range(count):
            if at < timed and faulty:
                run.trial([us * factor for factor in (1, 1.1, 1.3, 1.7, 2.4, 4)], name=_CONVOLUTION, geometry=FILLS)
            else:
                convolution(run)

    def backward(run: GpuRun) -> None:
        for _ in range(2 * count):
            convolution(run)

    return Program(
        step=Step(forward=forward, backward=backward, update=update),
        batch=lambda steps: f"16x3x{sizes[steps]}x{sizes[steps]}" if steps in _INSPECTED else None,
        conditions={
            "trainer.precision": "32-true",
            "model.convolutions": count,
            "model.channels_last_convolutions": count,
            "flags.cudnn_benchmark": True,
            "flags.cudnn_deterministic": False,
        },
    )


_H100: Mapping[str, object] = {**A100, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "numSms": 132}
_H100_FLOPS = 989e12


def _on_hopper(random: Random, *, reached: float, sm: float, dram: float) -> Program:
    """Products that reach a share of an H100's peak, beside what its counters read."""
    count = random.randint(8, 14)

    def work(passes: int) -> Work:
        def launch(run: GpuRun) -> None:
            for _ in range(passes * 2 * count):
                _product(run, (4096, 4096, 4096), reached=reached * _H100_FLOPS / _PEAK_FLOPS)
            pointwise(run, 12.0)

        return launch

    return Program(
        step=Step(forward=work(1), backward=work(2), update=update),
        conditions={"device.name": str(_H100["name"]), "device.capability": "9.0"},
        document={"deviceProperties": [_H100]},
        driver={"sm_active_ratio": sm, "dram_active_ratio": dram},
    )


def near_one_roof(random: Random, faulty: bool) -> Program:
    """The memory is far more in use than the arithmetic; the twin uses both alike."""
    reached = random.uniform(0.42, 0.5)
    return _on_hopper(random, reached=reached, sm=0.9, dram=random.uniform(0.7, 0.85) if faulty else 0.9 * reached)


def waiting_warps(random: Random, faulty: bool) -> Program:
    """Kernels are long and use neither SMs nor memory; the twin's use both."""
    low = {"sm": random.uniform(0.08, 0.15), "dram": random.uniform(0.02, 0.05)}
    return _on_hopper(random, reached=random.uniform(0.03, 0.05) if faulty else 0.5, **low if faulty else _FULL)


_FULL = {"sm": 0.9, "dram": 0.45}


def needless_biases(random: Random, faulty: bool) -> Program:
    """Convolutions before a BatchNorm have a bias; a hint, which nothing is measured for."""
    convolutions = random.randint(16, 50)
    program = healthy(random, faulty)
    biased = random.randint(1, convolutions) if faulty else 0
    of_model = {"model.convolutions": convolutions, "model.conv_bias_before_norm": biased}
    return Program(step=program.step, conditions={**of_model, "model.channels_last_convolutions": convolutions})


def slow_products(random: Random, faulty: bool) -> Program:
    """Products reach a small part of the peak, for a reason that no trace tells; the twin's reach most of it."""
    count, reached = random.randint(8, 14), random.uniform(0.08, 0.2) if faulty else 0.6

    def work(passes: int) -> Work:
        def launch(run: GpuRun) -> None:
            for _ in range(passes * 2 * count):
                _product(run, (4096, 4096, 4096), reached=reached)
            pointwise(run, 12.0)

        return launch

    return Program(step=Step(forward=work(1), backward=work(2), update=update))


def copies_in_memory(random: Random, faulty: bool) -> Program:
    """Tensors are copied within the device's memory between products; the twin keeps one layout."""
    count = random.randint(8, 14)
    shape = [random.choice([32, 64]), 197, 768]
    us = random.uniform(150.0, 300.0)
    half = ["c10::BFloat16"] * 2

    def work(passes: int) -> Work:
        products = layers(1, 4096, passes=passes)

        def launch(run: GpuRun) -> None:
            for _ in range(count):
                products(run)
                for _ in range(2 * passes if faulty else 0):
                    run.kernel(
                        us, host_us=9.0, op="aten::copy_", name=_COPY, inputs=([shape] * 2, half), geometry=FILLS
                    )

        return launch

    return Program(step=Step(forward=work(1), backward=work(2), update=update))
