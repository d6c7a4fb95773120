"""Kernels of a window as people read them."""

import msgspec
import pytest
from table_texts import texts

from lightning_gpuprof.model.trace.kernels import (
    ActivityRow,
    ClassRow,
    DtypeRow,
    DurationBucket,
    KernelClass,
    KernelFacts,
    KernelFillFacts,
    KernelRow,
    KernelTime,
    NoSavingRow,
    SavingKind,
    SavingRow,
    SmallKernels,
    TensorCoreUse,
)
from lightning_gpuprof.sinks.window_tables import kernels as tables
from lightning_gpuprof.sinks.window_tables import short_names

RELU = "void at::native::relu_kernel<c10::BFloat16>(int, c10::BFloat16*)"
FILL = {"est_sm_efficiency_ratio": 0.5, "est_occupancy_ratio": None, "waves": 1.5, "tail_ratio": 0.25}
TIMES = {"count": 4, "total_us": 2000.0, "average_us": 500.0, "min_us": 1.0, "max_us": 900.0}


def activity(device: str, stream: int | None, operator: str | None) -> ActivityRow:
    return ActivityRow(
        name=RELU,
        operator=operator,
        device=device,
        stream=stream,
        grid=(8, 1, 1),
        block=None,
        kernel_class="elementwise",
        dtype="bf16",
        **TIMES,
        **FILL,
    )


def saving(kind: SavingKind, **numbers: float | str) -> SavingRow:
    return SavingRow(
        name=RELU, kernel_class="elementwise", dtype="fp32", kind=kind, count=4, total_us=2e3, saving_us=1e3, **numbers
    )


def found() -> KernelFacts:
    return KernelFacts(
        count=4,
        total_us=2000.0,
        device_window_us=1e4,
        classes=(
            ClassRow(
                kernel_class="elementwise",
                count=4,
                total_us=2000.0,
                share_ratio=1.0,
                average_us=500.0,
                est_sm_efficiency_ratio=0.5,
                est_occupancy_ratio=None,
            ),
        ),
        dtypes=(
            DtypeRow(dtype=None, count=4, total_us=2000.0, share_ratio=1.0, matrix_us=0.0, matrix_share_ratio=None),
        ),
        tensor_cores=TensorCoreUse(
            available=True,
            matrix_us=1000.0,
            yes_us=500.0,
            no_us=300.0,
            unknown_us=200.0,
            unsuited_us=100.0,
            largest_no=(KernelTime(name="volta_sgemm", count=1, total_us=200.0),),
        ),
        fill=KernelFillFacts(
            est_sm_efficiency_ratio=0.5,
            est_sm_efficiency_known_ratio=1.0,
            est_sm_efficiency_of_window_ratio=0.1,
            est_occupancy_ratio=None,
            est_occupancy_known_ratio=0.0,
            est_occupancy_computed_ratio=0.0,
            waves_known_ratio=0.5,
            tail_us=250.0,
        ),
        kernels=(
            KernelRow(
                name=RELU, kernel_class="elementwise", dtype="bf16", tensor_cores=None, share_ratio=1.0, **TIMES, **FILL
            ),
        ),
        activity=(activity("0", 7, "aten::relu"), activity("0", None, None)),
        activity_rows=5,
        durations=(
            DurationBucket(from_us=0.0, to_us=2.0, count=3, count_ratio=0.75, total_us=3.0, total_ratio=0.1),
            DurationBucket(from_us=1000.0, to_us=None, count=1, count_ratio=0.25, total_us=27.0, total_ratio=0.9),
        ),
        small=SmallKernels(
            limit_us=10.0,
            count=3,
            count_ratio=0.75,
            total_us=3.0,
            total_ratio=0.1,
            launched_count=3,
            launch_call_us=15.0,
            launch_call_median_us=5.0,
            longer_launch_count=3,
            launch_gap_us=40.0,
        ),
        savings=(
            saving("idle multiprocessors", est_sm_efficiency_ratio=0.5),
            saving("no tensor cores", peak_ratio=8.0, faster_dtype="tf32"),
            saving("launch gap"),
        ),
        no_savings=(NoSavingRow(why="communication", count=1, total_us=10.0, share_ratio=0.1),),
    )


def test_estimates_are_named_as_such_and_explained() -> None:
    table = tables.class_table(found())
    titles = {column.title: column.help for column in table.columns}
    assert "not measured" in titles["est. SM eff."]
    assert texts(table) == [["elementwise", "", "4", "2", "100.0 %", "500", "50.0 %", "-", "memory"]]


def test_classes_have_what_usually_limits_them_where_that_is_known() -> None:
    kinds: tuple[KernelClass, ...] = ("elementwise", "gemm", "triton")
    classes = tuple(msgspec.structs.replace(found().classes[0], kernel_class=kind) for kind in kinds)
    table = tables.class_table(msgspec.structs.replace(found(), classes=classes))
    assert [row[-1].text for row in table.rows] == ["memory", "compute", "-"]
    assert "not measured" in table.columns[-1].help


def test_a_type_that_the_name_does_not_tell_is_said_to_be_that() -> None:
    assert texts(tables.dtype_table(found()))[0][0] == "unknown"


def test_tensor_cores_have_a_row_for_unknown() -> None:
    rows = texts(tables.tensor_core_table(found()))
    assert [(row[0].split(":")[0].strip(), row[2]) for row in rows] == [
        ("yes", "50.0 %"),
        ("no", "30.0 %"),
        ("of which", "10.0 %"),
        ("volta_sgemm", "20.0 %"),
        ("unknown", "20.0 %"),
    ]


def test_fill_says_for_how_much_of_the_time_it_is_known() -> None:
    rows = texts(tables.fill_table(found()))
    assert [row[1:3] for row in rows] == [["50.0 %", "100.0 %"], ["10.0 %", "-"], ["-", "0 %"], ["0.250 ms", "50.0 %"]]


def test_kernels_are_short_and_explained_by_their_full_name() -> None:
    cell = tables.kernel_table(found()).rows[0][0]
    assert (cell.text, cell.help) == ("relu_kernel<BFloat16>", RELU)


def test_activity_has_what_launched_it_and_where_it_ran() -> None:
    table = tables.activity_table(msgspec.structs.replace(found(), activity_rows=500))
    assert table.title == "Kernel activity (first 20 of 500)"
    assert texts(table)[0][:5] == ["relu_kernel<BFloat16>", "aten::relu", "7", "8 1 1", "-"]
    assert texts(table)[1][1:3] == ["-", "-"]


def test_durations_and_small_kernels() -> None:
    assert [row[0] for row in texts(tables.duration_table(found()))] == ["0 to 2", "1,000 and more"]
    small = tables.small_kernel_table(found())
    assert small.title == "Kernels below 10 µs"
    assert ["launch gaps", "0.0400 ms"] in [row[:2] for row in texts(small)]


def test_each_saving_says_why() -> None:
    rows = texts(tables.saving_table(found()))
    assert [row[0] for row in rows] == ["1", "1", "1"]
    assert "est. SM efficiency 50.0 %" in rows[0][-1]
    assert "tf32 on tensor cores is at most 8 times as fast" in rows[1][-1]
    assert "not the kernel" in rows[2][-1]
    assert texts(tables.no_saving_table(found()))[0][0] == "communication"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("void (anonymous namespace)::softmax<float>(float*, int (*)(int))", "softmax<float>"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_64x64>(cutlass::Params)",
            "cutlass_80_tensorop_bf16_s16816gemm_64x64",
        ),
        (")", ")"),
        ("broken)", "broken)"),
        ("\x1b[31mred", "\\x1b[31mred"),
    ],
)
def test_a_short_name_keeps_what_tells_it_apart(name: str, short: str) -> None:
    assert short_names.short(name, 60) == short


def test_a_long_name_keeps_both_ends() -> None:
    shown = short_names.short("head_" + "x" * 100_000 + "_tail", 40)
    assert len(shown) == 40
    assert shown.startswith("head_")
    assert shown.endswith("_tail")
