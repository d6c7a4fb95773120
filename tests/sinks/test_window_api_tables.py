"""The tables of Nsight Systems as people read them."""

import msgspec
from empty_structs import empty
from table_texts import texts

from lightning_gpuprof.model.trace.api_tables import (
    ApiTables,
    KernelExecutionRow,
    LaunchLatency,
    LaunchShapeRow,
    MemorySizeRow,
    TimeRow,
)
from lightning_gpuprof.sinks.window_tables import api_tables as tables

TIMES = {
    "count": 3,
    "total_us": 1234.5,
    "share_of_table_ratio": 0.75,
    "share_of_window_ratio": 0.0123,
    "average_us": 411.5,
    "median_us": 400.0,
    "min_us": 34.5,
    "max_us": 800.0,
    "std_us": 12.0,
}
EMPTY = empty(ApiTables)


def execution(name: str, api: str) -> KernelExecutionRow:
    return empty(
        KernelExecutionRow,
        name=name,
        api=api,
        count=2,
        calls=2,
        api_total_us=10.0,
        api_average_us=5.0,
        kernel_total_us=8.0,
        kernel_average_us=4.0,
        total_us=18.0,
        average_us=9.0,
        share_of_table_ratio=1.0,
        kernel_share_of_window_ratio=0.1,
    )


def found() -> ApiTables:
    return ApiTables(
        device_window_us=1e5,
        host_window_us=1e5,
        api_total_us=1646.0,
        kernel_total_us=1234.5,
        memory_total_us=1.0,
        cuda_api_sum=(TimeRow(name="cudaLaunchKernel", **TIMES),),
        cuda_gpu_kern_sum=(TimeRow(name="void at::native::sum_kernel<float>(int, float*)", **TIMES),),
        cuda_gpu_kern_gb_sum=(
            LaunchShapeRow(name="a", grid=(1, 2, 3), block=(32, 1, 1), **TIMES),
            LaunchShapeRow(name="b", grid=None, block=None, **TIMES),
        ),
        cuda_gpu_mem_time_sum=(TimeRow(name="Memcpy HtoD (Pageable -> Device)", **TIMES),),
        cuda_gpu_mem_size_sum=(MemorySizeRow(name="Memset (Device)", count=4),),
        cuda_kern_exec_sum=(execution("a", "cudaLaunchKernel"), execution("b", "cuLaunchKernel")),
        kernels_without_launch=7,
        launch_to_start=LaunchLatency(count=2, negative_count=0, average_us=3.0, median_us=3.0, min_us=1.0, max_us=5.0),
    )


def test_a_row_has_both_shares_and_the_columns_of_nsys() -> None:
    table = tables.nsys_table("cuda_api_sum", found())
    assert [column.title for column in table.columns] == [
        *("table", "window", "total", "calls", "avg", "med", "min", "max", "std", "call")
    ]
    assert texts(table) == [["75.0 %", "1.2 %", "1,230", "3", "412", "400", "34.5", "800", "12", "cudaLaunchKernel"]]
    assert "nsys' Time (%)" in table.columns[0].help
    assert "host" in table.columns[1].help


def test_calls_and_gpu_work_in_one_table_have_a_category_and_the_columns_of_nsys() -> None:
    table = tables.nsys_table("cuda_api_gpu_sum", found())
    assert [column.title for column in table.columns] == [
        *("table", "category", "total", "count", "avg", "med", "min", "max", "std", "operation")
    ]
    assert {(row[1].text, row[8].text) for row in table.rows} == {
        ("CUDA_API", "12"),
        ("CUDA_KERNEL", "12"),
        ("MEMORY_OPER", "12"),
    }


def test_kernels_are_named_by_what_tells_them_apart_and_explained_by_the_full_name() -> None:
    cell = tables.nsys_table("cuda_gpu_kern_sum", found()).rows[0][-1]
    assert cell.text == "sum_kernel<float>"
    assert cell.help == "void at::native::sum_kernel<float>(int, float*)"


def test_grid_and_block_are_shown_where_they_are_known() -> None:
    rows = texts(tables.nsys_table("cuda_gpu_kern_gb_sum", found()))
    assert [row[-3:] for row in rows] == [["1 2 3", "32 1 1", "a"], ["-", "-", "b"]]


def test_copies_tell_the_name_that_nsys_has_for_them() -> None:
    cell = tables.nsys_table("cuda_gpu_mem_time_sum", found()).rows[0][-1]
    assert cell.text == "Memcpy HtoD (Pageable -> Device)"
    assert cell.help == "nsys: [CUDA memcpy Host-to-Device]"


def test_unknown_sizes_are_not_zero() -> None:
    assert texts(tables.nsys_table("cuda_gpu_mem_size_sum", found()))[0][:4] == ["-", "4", "0", "-"]


def test_copies_between_host_and_device_have_their_share_of_the_link() -> None:
    upload, memset = "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"
    sizes = tuple(
        MemorySizeRow(name=name, count=1, sized_count=1, total_bytes=10**9, bandwidth_bytes_per_s=12.6e9)
        for name in (upload, memset)
    )
    times = tuple(TimeRow(name=name, **TIMES) for name in (upload, memset))
    copied = msgspec.structs.replace(found(), cuda_gpu_mem_size_sum=sizes, cuda_gpu_mem_time_sum=times)
    known = msgspec.structs.replace(copied, pcie_bytes_per_s=63e9)
    for table in ("cuda_gpu_mem_size_sum", "cuda_gpu_mem_time_sum"):
        shown = tables.nsys_table(table, known)
        assert [column.title for column in shown.columns][-3:] == ["bandwidth", "of PCIe", "operation"]
        assert [row[-3:] for row in texts(shown)] == [["12.6", "20.0 %", upload], ["12.6", "-", memset]]
        assert [column.title for column in tables.nsys_table(table, copied).columns][-2:] == ["bandwidth", "operation"]


def test_executions_name_their_call_where_there_is_more_than_one() -> None:
    table = tables.nsys_table("cuda_kern_exec_sum", found())
    assert [row[-1] for row in texts(table)] == ["a, cudaLaunchKernel", "b, cuLaunchKernel"]
    assert "without 7 kernels" in table.title


def test_a_cut_table_says_so() -> None:
    table = tables.nsys_table("cuda_gpu_kern_gb_sum", found(), 1)
    assert len(table.rows) == 1
    assert table.title.endswith("(first 1 of 2)")
    assert len(tables.nsys_table("cuda_gpu_kern_gb_sum", found(), None).rows) == 2


def test_the_latency_of_launches_is_shown() -> None:
    assert ["median", "3 µs"] in texts(tables.launch_table(found()))
