"""What steps on a GPU are made of: products, operators, copies, and the parts of a step that a fault may replace."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

from truths.gpu_runs import FETCH, GpuRun

Work = Callable[[GpuRun], None]

BF16_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
FP32_GEMM = "ampere_sgemm_128x64_nn"
TF32_GEMM = "ampere_tf32_s1688gemm_128x128_ldg4_stages_32x3_nn"
VOLTA_FP32_GEMM = "volta_sgemm_128x64_nn"
VOLTA_FP16_GEMM = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
MULTI_TENSOR = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>(T1, T2)"

FLOPS = {
    BF16_GEMM: 0.6 * 312e12,
    TF32_GEMM: 0.6 * 156e12,
    FP32_GEMM: 0.8 * 19.5e12,
    VOLTA_FP32_GEMM: 0.8 * 15.7e12,
    VOLTA_FP16_GEMM: 0.6 * 125e12,
}
"""What a large product reaches on an A100 or V100: parts of its peaks."""

_DTYPES = {BF16_GEMM: "c10::BFloat16", VOLTA_FP16_GEMM: "c10::Half"}

BYTES_PER_S = 1.3e12
PAGEABLE_BYTES_PER_S = 5e9
PINNED_BYTES_PER_S = 22e9
FILLS = {"grid": [4096, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
"""Launch geometry that leaves no multiprocessor without work."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The parts of a training step, each of which a fault may replace."""

    forward: Work
    backward: Work
    update: Work | None
    """None: in a batch without an optimizer step."""
    fetch: Work = lambda run: run.python(60.0)
    upload: Work = lambda run: pinned(run, 4 << 20)
    check: Work | None = None
    """What the ranks agree on before the batch is fetched."""
    after: Work = lambda run: run.python(150.0)

    def __call__(self, run: GpuRun) -> None:
        if self.check is not None:
            with run.part("sync"):
                self.check(run)
        with run.part("data_wait"), run.range(FETCH):
            self.fetch(run)
        with run.part("h2d"):
            self.upload(run)
        with nullcontext() if self.update is None else run.part("optimizer"):
            with run.part("forward"), run.line("net.py(20): training_step"):
                self.forward(run)
            with run.part("backward"):
                self.backward(run)
            if self.update is not None:
                self.update(run)
        with run.part("callbacks"):
            self.after(run)
        run.python(80.0)


def gemm(run: GpuRun, size: int, *, name: str = BF16_GEMM, op: str = "aten::mm") -> None:
    """A product of two square matrices."""
    dtype = _DTYPES.get(name, "float")
    us = 2.0 * size**3 / FLOPS[name] * 1e6
    run.kernel(us, host_us=11.0, op=op, name=name, inputs=([[size, size]] * 2, [dtype] * 2), geometry=FILLS)


def pointwise(run: GpuRun, us: float, *, host_us: float = 9.0) -> None:
    """An operator that goes through memory once."""
    run.kernel(us, host_us=host_us, op="aten::add", name=POINTWISE, geometry=FILLS)


def pinned(run: GpuRun, nbytes: int, bytes_per_s: float = PINNED_BYTES_PER_S) -> None:
    """The batch, from pinned memory."""
    run.copy(nbytes / bytes_per_s * 1e6, nbytes, kind="HtoD (Pinned -> Device)")


def update(run: GpuRun) -> None:
    """An optimizer that is fused over all parameters."""
    for _ in range(4):
        run.kernel(180.0, host_us=25.0, op="aten::_foreach_addcdiv_", name=MULTI_TENSOR, geometry=FILLS)


def layers(count: int, size: int, *, name: str = BF16_GEMM, passes: int = 1) -> Work:
    """Products with a little between them; ``passes`` is 2 in a backward pass."""

    def work(run: GpuRun) -> None:
        for _ in range(count):
            for _ in range(2 * passes):
                gemm(run, size, name=name)
            pointwise(run, 12.0)

    return work


def repeated(work: Work, count: int) -> Step:
    """A step whose forward pass does the work so many times, and whose backward pass twice as often."""

    def times(passes: int) -> Work:
        def launch(run: GpuRun) -> None:
            for _ in range(passes * count):
                work(run)

        return launch

    return Step(forward=times(1), backward=times(2), update=update)


def busy(random: Random, *, name: str = BF16_GEMM, size: int = 4096) -> tuple[Work, Work]:
    """Forward and backward of a model whose host is well ahead of its device."""
    count = random.randint(8, 14)
    return layers(count, size, name=name), layers(count, size, name=name, passes=2)


def outlasting(random: Random, size: int) -> tuple[int, Work, Work]:
    """Layers, and forward and backward of them, for faults whose size is so much a layer.

    So the twin's device outlasts its host, whatever is drawn, and the fault is a good part of the step.
    """
    count = random.randint(8, 14)
    return count, layers(count, size), layers(count, size, passes=2)
