"""Roofline and MFU: hand-made operators whose rates are written out, and recorded traces whose FLOPs are known."""

import io
import json
from functools import cache

import pytest
from recorded_traces import NAMES, recorded_trace
from tiny_traces import Json, document, span

from lightning_gpuprof.model.device_peaks import peaks_of
from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.model.trace.roofline import MeasuredCeilings, Roofline
from lightning_gpuprof.trace.analyses.roofline.roofline import roofline
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.reader import Trace

H100 = "NVIDIA H100 80GB HBM3"
BF16, TF32, BYTES = 989.5e12, 494.5e12, 3350e9
"""Peaks of the H100's data sheet."""
N = 4096
FLOPS, MOVED = 2 * N**3, 3 * N * N * 2
"""Of a square product in bf16."""


def linked(events: list[Json], device: str | None = H100) -> LinkedTrace:
    whole = document(events) | {"deviceProperties": [{"id": 0, "name": device}] if device else []}
    return LinkedTrace(Trace.read(io.BytesIO(json.dumps(whole).encode())))


def op(
    name: str, ts: float, dur: float, shapes: list[object], types: list[str], values: list[str] | None = None
) -> Json:
    said: dict[str, object] = {"Input Dims": shapes, "Input type": types}
    event = span("cpu_op", name, ts, dur)
    return event | {"args": said if values is None else said | {"Concrete Inputs": values}}


def launch(ts: float, correlation: int, dur: float, name: str = "nvjet_tst_128x256", cat: str = "kernel") -> list[Json]:
    work = span(cat, name, 10_000 + ts, dur, pid=0, tid=7)
    work["args"] = {"device": 0, "stream": 7, "correlation": correlation}
    return [span("cuda_runtime", "cudaLaunchKernel", ts, 1, correlation=correlation), work]


def product(
    ts: float, correlation: int, dur: float, dtype: str = "c10::BFloat16", kernel: str = "nvjet_tst_128x256"
) -> list[Json]:
    return [
        op("aten::mm", ts, 20, [[N, N], [N, N]], [dtype, dtype], ["", ""]),
        *launch(ts + 5, correlation, dur, kernel),
    ]


def test_a_product_is_held_against_the_peak_of_its_type() -> None:
    found = roofline(linked([*product(0, 1, 200), *product(100, 2, 300)]))
    (row,) = found.rows
    assert (row.operator, row.input_shape, row.dtype, row.kind, row.calls) == (
        "aten::mm",
        "4096x4096, 4096x4096",
        "bf16",
        "gemm",
        2,
    )
    assert (row.flops_per_call, row.bytes_per_call, row.flops_per_byte) == (FLOPS, MOVED, FLOPS / MOVED)
    assert (row.device_us, row.device_average_us) == (500, 250)
    assert row.flops_per_s == pytest.approx(2 * FLOPS / 500e-6)
    assert row.bytes_per_s == pytest.approx(2 * MOVED / 500e-6)
    assert row.ceiling_flops_per_s == pytest.approx(BF16)
    assert row.ceiling_ratio == pytest.approx(2 * FLOPS / BF16 / 500e-6)
    assert (row.bound, row.faster_than) == ("compute", None)


def counted(dram_bytes: float | None) -> MeasuredKernel:
    return MeasuredKernel(
        name="k",
        launches=1,
        duration_us=1.0,
        occupancy_ratio=None,
        l1_hit_ratio=None,
        l2_hit_ratio=None,
        dram_bytes=dram_bytes,
    )


def test_bytes_that_ncu_measured_stand_in_for_the_least_that_shapes_allow() -> None:
    events = [*product(0, 1, 200), *product(100, 2, 300)]
    (row,) = roofline(linked(events), counters={"nvjet_tst_128x256": counted(100 * MOVED)}).rows
    assert (row.bytes_per_call, row.flops_per_byte) == (MOVED, FLOPS / MOVED)
    assert (row.measured_bytes_per_call, row.measured_flops_per_byte) == (100 * MOVED, FLOPS / (100 * MOVED))
    assert row.intensity == row.measured_flops_per_byte
    assert row.bytes_per_s == pytest.approx(200 * MOVED / 500e-6)
    assert (row.bound, row.faster_than) == ("memory", "memory")
    least = roofline(linked([*events, *launch(6, 3, 1, "helper")]), counters={"nvjet_tst_128x256": counted(MOVED)})
    assert [one.measured_bytes_per_call for one in least.rows] == [None], "one of its kernels was not measured"
    (row,) = roofline(linked(events), counters={"nvjet_tst_128x256": counted(None)}).rows
    assert (row.measured_flops_per_byte, row.bound) == (None, "compute")


def test_an_elementwise_operator_is_held_against_the_bandwidth() -> None:
    events = [op("aten::mul", 0, 20, [[1 << 24], [1 << 24]], ["float", "float"], ["", ""]), *launch(5, 1, 100, "mul")]
    (row,) = roofline(linked(events)).rows
    assert row.bytes_per_call == 3 * 4 * (1 << 24)
    assert (row.bound, row.ceiling_ratio) == ("memory", pytest.approx(3 * 4 * (1 << 24) / BYTES / 100e-6))
    assert row.ceiling_flops_per_s == pytest.approx(BYTES / 12)


def test_a_product_with_little_reuse_is_bound_by_memory() -> None:
    events = [op("aten::mm", 0, 20, [[1, N], [N, N]], ["c10::BFloat16"] * 2, ["", ""]), *launch(5, 1, 100)]
    (row,) = roofline(linked(events)).rows
    moved = 2 * (N + N * N + N)
    assert (row.bound, row.ceiling_ratio) == ("memory", pytest.approx(moved / BYTES / 100e-6))


def test_fp32_is_tf32_if_the_kernel_says_so() -> None:
    tf32 = roofline(linked(product(0, 1, 400, "float", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32")))
    fp32 = roofline(linked(product(0, 1, 4000, "float", "ampere_sgemm_128x64_tn")))
    assert (tf32.rows[0].dtype, tf32.ceilings[0].flops_per_s) == ("tf32", TF32)
    assert (fp32.rows[0].dtype, fp32.ceilings[0].flops_per_s) == ("fp32", 67e12)


def test_what_is_faster_than_the_device_is_flagged_and_has_no_share() -> None:
    found = roofline(linked([*product(0, 1, 10)]))
    (row,) = found.rows
    assert (row.faster_than, row.ceiling_ratio) == ("compute", None)
    assert found.faster_flops_ratio == 1
    assert found.busy.mfu_ratio is None
    cached = [op("aten::relu", 0, 20, [[1 << 20]], ["float"], [""]), *launch(5, 1, 1, "relu")]
    (row,) = roofline(linked(cached)).rows
    assert (row.faster_than, row.ceiling_ratio) == ("memory", None)


def test_a_winograd_convolution_is_not_held_against_the_peak() -> None:
    shapes: list[object] = [[32, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []]
    values = ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "False"]
    types = ["float", "float", *["Scalar"] * 7]
    event = op("aten::cudnn_convolution", 0, 20, shapes, types, values)
    found = roofline(linked([event, *launch(5, 1, 50, "cudnn::winograd_nonfused::winogradForwardData4x4<float>")]))
    (row,) = found.rows
    assert (row.algorithm, row.faster_than, row.ceiling_ratio) == ("Winograd", None, None)
    assert row.flops_per_call == 2 * 32 * 64 * 56 * 56 * 64 * 9
    assert (found.reduced_flops_ratio, found.faster_flops_ratio) == (1, 0)


def test_an_operator_inside_one_whose_work_is_known_does_not_count_again() -> None:
    half = "c10::BFloat16"
    attention: list[object] = [[2, 8, 128, 64]] * 3
    inner: list[object] = [[2, 128, 8, 64]] * 3
    events = [
        op(
            "aten::_scaled_dot_product_flash_attention",
            0,
            50,
            [*attention, [], [], []],
            [half] * 3 + ["Scalar"] * 3,
            ["", "", "", "0", "False", "False"],
        ),
        op(
            "aten::_flash_attention_forward",
            10,
            30,
            [*inner, [], [], [], [], [], [], []],
            [half] * 3 + ["Scalar"] * 7,
            ["", "", "", "", "", "128", "128", "0", "False", "False"],
        ),
        *launch(20, 1, 30, "flash_fwd_kernel"),
    ]
    found = roofline(linked(events))
    (row,) = found.rows
    assert row.operator == "aten::_scaled_dot_product_flash_attention"
    assert row.flops_per_call == 4 * 2 * 8 * 128 * 128 * 64
    assert found.coverage_ratio == 1


def test_coverage_is_the_share_of_matrix_kernels_whose_flops_are_known() -> None:
    unknown = span("cpu_op", "mine::matmul", 200, 20)
    found = roofline(linked([*product(0, 1, 300), unknown, *launch(205, 2, 100), *launch(300, 3, 50, "relu_kernel")]))
    assert (found.matrix_us, found.coverage_ratio) == (400, 0.75)


def test_mfu_over_steps_and_over_busy_time() -> None:
    step = span("user_annotation", "ProfilerStep#1", 0, 1000)
    outside = product(2000, 3, 250)
    found = roofline(linked([step, *product(0, 1, 250), *product(100, 2, 250), *outside]))
    assert found.flops_per_step == 2 * FLOPS
    assert found.flops_by_dtype == {"bf16": 3 * FLOPS}
    assert found.steps.flops_per_s == pytest.approx(2 * FLOPS / 1e-3)
    assert found.steps.mfu_ratio == pytest.approx(2 * FLOPS / 1e-3 / BF16)
    # the first two kernels overlap for 150 µs
    assert found.busy.seconds == pytest.approx(600e-6)
    assert found.busy.mfu_ratio == pytest.approx(3 * FLOPS / 600e-6 / BF16)
    assert found.busy.measured_ratio is None


def test_mfu_weighs_each_type_by_its_peak() -> None:
    events = [*product(0, 1, 300), *product(1000, 2, 600, "float", "cutlass_80_tensorop_s1688gemm_128x128")]
    found = roofline(linked(events))
    assert found.flops_by_dtype == {"bf16": FLOPS, "tf32": FLOPS}
    assert found.busy.mfu_ratio == pytest.approx((FLOPS / BF16 + FLOPS / TF32) / 900e-6)


def test_measured_ceilings_stand_in_for_the_data_sheet_but_not_in_the_mfu() -> None:
    events = product(0, 1, 200)
    found = roofline(
        linked(events), measured=MeasuredCeilings(device="H100", flops_per_s={"bf16": 700e12}, bytes_per_s=3e12)
    )
    (row,) = found.rows
    assert row.ceiling_flops_per_s == pytest.approx(700e12)
    assert (found.ceilings[0].measured, found.bytes_per_s, found.bytes_measured) == (True, 3e12, True)
    assert found.busy.mfu_ratio == pytest.approx(FLOPS / 200e-6 / BF16)
    assert found.busy.measured_ratio == pytest.approx(FLOPS / 200e-6 / 700e12)


def test_a_device_that_is_in_no_table_has_rates_and_no_shares() -> None:
    found = roofline(linked(product(0, 1, 200), "Some Accelerator 9"))
    (row,) = found.rows
    assert row.flops_per_s == pytest.approx(FLOPS / 200e-6)
    assert (row.ceiling_ratio, row.bound, found.peak_source, found.bytes_per_s) == (None, None, None, None)
    assert found.busy.mfu_ratio is None
    ceilings = MeasuredCeilings(device="?", flops_per_s={"bf16": BF16}, bytes_per_s=BYTES)
    measured = roofline(linked(product(0, 1, 200), None), measured=ceilings)
    assert measured.rows[0].ceiling_ratio == pytest.approx(FLOPS / BF16 / 200e-6)


def test_copies_from_the_host_are_held_against_nothing() -> None:
    copy = op("aten::copy_", 0, 20, [[N], [N], []], ["float", "float", "Scalar"], ["", "", "False"])
    found = roofline(linked([copy, *launch(5, 1, 20, "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy")]))
    assert found.rows == ()


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "no device activity"),
        ([op("aten::mm", 0, 20, [[4, 4], [4, 4]], ["float", "float"])], "no device activity"),
        (launch(0, 1, 5), "no operators"),
        ([span("cpu_op", "aten::mm", 0, 20), *launch(5, 1, 5)], "without input shapes"),
        ([op("mine::op", 0, 20, [[4]], ["float"]), *launch(5, 1, 5)], "no operator with known FLOPs and bytes"),
    ],
)
def test_without_shapes_or_work_there_is_a_reason_and_no_number(events: list[Json], reason: str) -> None:
    found = roofline(linked(events))
    assert reason in found.reason
    assert found == Roofline(reason=found.reason, device=found.device)


@cache
def recorded(name: str) -> Roofline:
    return roofline(recorded_trace(name))


RESNET50 = 32 * (3 * 8.178e9 - 0.236e9)
"""FLOPs of a training step of ResNet-50 with 32 images of 224x224: three passes of 4.089 GMAC each, without the
gradient of the first convolution's input (0.118 GMAC)."""


@pytest.mark.parametrize("name", ["v100_resnet50_dl0_2021.json.gz", "v100_resnet50_dl0_preschema.json.gz"])
def test_a_step_of_resnet50_has_the_flops_that_are_known_of_it(name: str) -> None:
    found = recorded(name)
    assert found.flops_per_step == pytest.approx(RESNET50, rel=0.001)
    assert (found.coverage_ratio, found.faster_flops_ratio) == (1, 0)


def test_a_bfloat16_inference_keeps_its_products_below_the_peak() -> None:
    found = recorded("h100_owlv2.json.gz")
    products = [row for row in found.rows if row.kind == "gemm"]
    assert {row.dtype for row in products} == {"bf16"}
    assert not any(row.faster_than for row in products)
    assert 0.4 < max(row.ceiling_ratio or 0 for row in products) < 0.9


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_rows_of_recorded_traces_stay_inside_what_is_possible(name: str) -> None:
    found = recorded(name)
    assert bool(found.rows) != bool(found.reason)
    for row in found.rows:
        assert row.calls > 0
        assert (row.flops_per_s is None) == (row.device_us == 0)
        if row.flops_per_s is not None:
            assert row.flops_per_s == pytest.approx(row.flops_per_call * row.calls / row.device_us * 1e6)
        assert row.ceiling_ratio is None or 0 < row.ceiling_ratio <= 1.05
        assert row.ceiling_ratio is None or row.faster_than is None
    if found.coverage_ratio is not None:
        assert 0 <= found.coverage_ratio <= 1
    for rate in (found.steps, found.busy):
        if rate is not None and rate.mfu_ratio is not None:
            assert 0 < rate.mfu_ratio <= 1
    if found.device and found.rows and peaks_of(found.device):
        assert found.ceilings
