"""What ncu prints of single kernels stands beside the estimates of a trace."""

from collections import Counter
from pathlib import Path

import pytest
from recorded_traces import recorded_trace

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.sinks.window_tables.kernels import kernel_table
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.nsight_compute import by_kernel, function_of, read_ncu, with_measured

_COMMON = '"ID","Process ID","Kernel Name","Stream","Block Size","Grid Size"'
_HITS = '"l1tex__t_sector_hit_rate.pct","lts__t_sector_hit_rate.pct"'
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
VERSIONS = {
    "2021": f'''==PROF== Connected to process 7
{_COMMON},"dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum",{_HITS},"{_OCCUPANCY}"
"","","","","","","Mbyte","Kbyte","usecond","%","%","%"
"0","7","NAME","7","(128, 1, 1)","(4, 1, 1)","1.5","500.00","10.00","25.00","50.0","40.00"
"1","7","NAME","7","(128, 1, 1)","(4, 1, 1)","2.5","1,500.00","30.00","35.00","n/a","60.00"
''',
    "2024": f'''{_COMMON},"gpu__time_duration.sum","dram__bytes.sum",{_HITS},"{_OCCUPANCY}"
"","","","","","","ns","byte","%","%","%"
"0","7","NAME","7","(128, 1, 1)","(4, 1, 1)","20,000","3,000,000","30","50","50"
''',
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_counters_of_every_version_are_averages_over_the_launches(version: str, tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(VERSIONS[version].replace("NAME", "void gemm<float, 4>(float*)"))
    (found,) = read_ncu(path)
    assert (found.name, found.launches) == ("void gemm<float, 4>(float*)", 2 if version == "2021" else 1)
    assert found.duration_us == pytest.approx(20)
    assert (found.occupancy_ratio, found.l1_hit_ratio, found.l2_hit_ratio) == pytest.approx((0.5, 0.3, 0.5))
    assert found.dram_bytes == pytest.approx(3e6)
    assert found.dram_bytes_per_s == pytest.approx(150e9)


def test_what_was_measured_stands_beside_the_estimate_in_the_table_of_kernels(tmp_path: Path) -> None:
    found = analyse(recorded_trace("h100_bert_small.json.gz"), only=("kernels",)).kernels
    assert found is not None
    names = {row.name for row in found.kernels}
    known = Counter(function_of(row.name) for row in found.kernels)
    heaviest = next(row.name for row in found.kernels if known[function_of(row.name)] == 1)
    of_several = next(row.name for row in found.kernels if known[function_of(row.name)] > 1)
    assert "ncu occ." not in [column.title for column in kernel_table(found).columns]
    path = tmp_path / "ncu.csv"
    path.write_text(VERSIONS["2024"].replace("NAME", function_of(heaviest)))  # --print-kernel-base function
    joined = with_measured(found, by_kernel(names, read_ncu(path)))
    assert {row.name for row in joined.kernels if row.measured} == {heaviest}
    table = kernel_table(joined)
    titles = [column.title for column in table.columns]
    assert titles[1:7] == ["occ.", "ncu occ.", "L1 hits", "L2 hits", "DRAM", "DRAM rate"]
    (measured,) = (row for row in table.rows if row[6].text != "-")
    assert [cell.text for cell in measured[2:7]] == ["50.0 %", "30.0 %", "50.0 %", "2.86 MiB", "150"]
    path.write_text(VERSIONS["2024"].replace("NAME", of_several))
    assert list(by_kernel(names, read_ncu(path))) == [of_several]
    path.write_text(VERSIONS["2024"].replace("NAME", function_of(of_several)))
    assert not by_kernel(names, read_ncu(path)), "one of several templates"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void at::native::(anonymous namespace)::indexSelect<float, 2>(at::cuda::Info<float>)", "indexSelect"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn"),
        ("void gemm(float*)", "gemm"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(int)", "kernel"),
        ("void at::native::<unnamed>::softmax<float, (int)3>(float*)", "softmax"),
        ("", ""),
    ],
)
def test_the_function_of_a_kernel_is_what_ncu_filters_by(name: str, function: str) -> None:
    assert function_of(name) == function


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no column 'Kernel Name'"),
        ("a,b\n1,2\n" * 2000, "has no column 'Kernel Name'"),
        ('"ID","Kernel Name","Metric Name","Metric Value"\n"0","k","x","1"\n', "of another page than raw"),
        (f"{_COMMON}\n", "has no kernels"),
        (f'{_COMMON}\n"","","","","",""\n"0","7","' + "x" * 200_000, "cannot be read"),
    ],
)
def test_other_files_are_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(text)
    with pytest.raises(TraceError, match=said) as refused:
        read_ncu(tmp_path / "ncu.csv")
    assert "\n" not in str(refused.value)
    assert "ncu --csv --page raw --import" in str(refused.value)
