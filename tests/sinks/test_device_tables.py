"""The line and tables of a GPU: what matters is said, what is not known is named, nothing is invented."""

import msgspec
import pytest
from sample_report import distribution, full_report

from lightning_gpuprof.model.device import DeviceBusy, DeviceFacts, ThrottleShare
from lightning_gpuprof.model.report import Device, Distribution
from lightning_gpuprof.sinks.device_tables import device_line, error_table, fact_table, more_tables, throttle_table

FULL = full_report().devices[0]


def changed(**fields: object) -> Device:
    return msgspec.structs.replace(FULL, **fields)


def test_the_line_says_load_memory_power_clocks_and_their_limits() -> None:
    line = device_line(FULL)
    for words in (
        "44 samples (21 distinct), medians",
        "utilization 41.0 % (p95 47.6 %), often idle",
        "of 74.5 GiB",
        "power 182 of 700 W",
        "SM clock 1,410 of 1,980 MHz throttled: power cap in 40.0 % of busy samples",
        "2.00 kJ, 5 J/step",
        "corrected ECC errors +2",
    ):
        assert words in line
    assert line.endswith("not measured: performance state")


def test_the_fan_is_beside_the_temperature_and_missing_only_where_there_is_one() -> None:
    values = FULL.values | {"temperature_c": distribution(60.0), "fan_ratio": distribution(0.34, 0.0)}
    assert "°C at most (fan 34.0 %)" in device_line(changed(values=values))
    with_fan = msgspec.structs.replace(FULL.facts, fans_count=2)
    assert device_line(changed(facts=with_fan)).endswith("not measured: fan, performance state")


@pytest.mark.parametrize(
    ("utilization", "word"),
    [
        (0.699, "often idle"),
        (0.7, "partly idle"),
        (0.9, "partly idle"),
        (0.901, "nearly always busy"),
    ],
)
def test_utilization_has_a_word_where_there_are_enough_samples(utilization: float, word: str) -> None:
    values = {"utilization_ratio": distribution(utilization, 0.0)}
    assert f"%), {word}" in device_line(changed(values=values))
    assert word not in device_line(changed(values=values, distinct_samples=19))


def test_idle_clocks_and_rare_limits_are_no_news() -> None:
    quiet = (
        ThrottleShare(reason="gpu_idle", ratio=1.0, busy_ratio=1.0),
        ThrottleShare(reason="sw_power_cap", ratio=0.04, busy_ratio=0.04),
        ThrottleShare(reason="hw_thermal", ratio=0.5, busy_ratio=None),
    )
    assert "throttled" not in device_line(changed(throttle=quiet, busy=DeviceBusy(samples=0)))
    assert "throttled" not in device_line(changed(throttle=None))


def test_values_that_are_missing_together_are_named_once() -> None:
    none: dict[str, Distribution | None] = dict.fromkeys(
        (
            "compute_processes_count",
            "graphics_processes_count",
            "foreign_processes_count",
            "memory_own_bytes",
            "sm_active_ratio",
            "tensor_active_ratio",
            "dram_active_ratio",
            "nvlink_tx_bytes_per_s",
            "sm_clock_mhz",
        )
    )
    line = device_line(changed(values=none))
    assert line.endswith("not measured: processes, SM, tensor and DRAM activity, SM clock")


def test_a_link_is_told_of_only_if_it_never_was_at_its_best() -> None:
    facts = DeviceFacts(pcie_generation_max=5.0, pcie_width_max=16.0)
    idle_at_times = {"pcie_generation": distribution(4.0, 0.05), "pcie_width": distribution(16.0, 0.0)}
    assert "PCIe" not in device_line(changed(facts=facts, values=idle_at_times))
    narrow = {"pcie_generation": distribution(5.0, 0.0), "pcie_width": distribution(8.0, 0.0)}
    assert "PCIe 5 x8 of 5 x16" in device_line(changed(facts=facts, values=narrow))


def test_a_gpu_that_is_shared_says_with_how_many_and_how_much_they_hold() -> None:
    values = {
        "foreign_processes_count": distribution(2.0, 0.0),
        "memory_others_bytes": distribution(float(1 << 30), 0.0),
    }
    assert "2 other processes with 1 GiB" in device_line(changed(values=values))
    alone = {"foreign_processes_count": distribution(0.0, 0.0)}
    assert "of others" not in device_line(changed(values=alone))


def test_what_links_memory_and_types_can_do_at_most_is_a_fact_where_it_is_known() -> None:
    values = {"pcie_generation": distribution(4.0, 0.0), "pcie_width": distribution(8.0, 0.0)}
    facts = DeviceFacts(
        pcie_generation_max=5.0,
        pcie_width_max=16.0,
        nvlink_active_count=18,
        nvlink_each_bytes_per_s=26.562e9,
        memory_bus_bits=5120,
        memory_clock_max_mhz=2619.0,
        fans_count=2,
        threads_per_multiprocessor_count=2048,
        registers_per_multiprocessor_count=65536,
        shared_memory_per_multiprocessor_bytes=233472,
    )
    device = changed(facts=facts, values=values)
    shown = {
        row[1].text: row[2].text for row in fact_table(msgspec.structs.replace(full_report(), devices=(device,))).rows
    }
    assert shown["PCIe link at most, each way"] == "63.0 GB/s"
    assert shown["PCIe link in this run, each way"] == "15.8 GB/s"
    assert shown["NVLinks together, each way"] == "478 GB/s"
    assert shown["memory bandwidth by bus and clock"] == "3,350 GB/s"
    assert shown["fans"] == "2"
    assert shown["threads per multiprocessor"] == "2,048"
    assert shown["registers per multiprocessor"] == "65,536"
    assert shown["shared memory per multiprocessor"] == "228 KiB"
    assert shown["peak in bf16 (NVIDIA H100 data sheet)"] == "990 TFLOP/s"
    bare = changed(name="Some GPU", facts=DeviceFacts(), values={})
    names = [row[1].text for row in fact_table(msgspec.structs.replace(full_report(), devices=(bare,))).rows]
    assert not [name for name in names if "PCIe" in name or "NVLink" in name or "peak" in name or "fan" in name]
    slice = changed(facts=DeviceFacts(mig=True))
    assert "peak" not in str(fact_table(msgspec.structs.replace(full_report(), devices=(slice,))))


def test_tables_have_a_row_for_each_limit_counter_and_known_fact() -> None:
    report = full_report()
    assert [row[1].text for row in throttle_table(report).rows] == ["idle", "power cap"]
    assert [[cell.text for cell in row[1:]] for row in error_table(report).rows] == [["corrected ECC errors", "2", "4"]]
    facts = {row[1].text: row[2].text for row in fact_table(report).rows}
    assert facts["ecc"] == "on"
    assert facts["distinct samples"] == "21 of 44"
    assert "mig" not in facts
    assert len(more_tables(report)) == 3
    assert more_tables(msgspec.structs.replace(report, devices=())) == ()
