"""What a report says of a GPU, from samples of known values in steps of known times."""

import msgspec
import pytest
from built_journals import MS, build, journal

from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.clock_events import MASK, REASONS, TERMS, WORDS, reasons_of, split
from lightning_gpuprof.model.device import DeviceEnergy, ErrorCounter
from lightning_gpuprof.model.journal import Sample
from lightning_gpuprof.model.report import Device

BEGIN_MS, END_MS = 100, 1100
"""The 100 steps of 10 ms of the journal."""


def sampled(*samples: tuple[int, dict[str, float | None]], conditions: dict[str, object] | None = None) -> Journal:
    of = journal()
    of.conditions |= conditions or {}  # type: ignore[arg-type]
    of.samples += [Sample(source="nvml", subject="gpu0", t_ns=t_ms * MS, values=values) for t_ms, values in samples]
    return of


def device(*samples: tuple[int, dict[str, float | None]], **conditions: object) -> Device:
    (found,) = build(
        sampled(*samples, conditions={f"gpu0.{name}": value for name, value in conditions.items()})
    ).devices
    return found


def test_clock_limits_are_shares_of_all_samples_and_of_busy_ones() -> None:
    cap, idle = float(REASONS["sw_power_cap"]), float(REASONS["gpu_idle"])
    found = device(
        (200, {"utilization_ratio": 0.9, MASK: cap, "sm_clock_mhz": 1200.0}),
        (300, {"utilization_ratio": 0.8, MASK: cap + REASONS["sw_thermal"], "sm_clock_mhz": 1000.0}),
        (400, {"utilization_ratio": 0.0, MASK: idle, "sm_clock_mhz": 300.0}),
        (500, {"utilization_ratio": 0.0, MASK: idle, "sm_clock_mhz": 300.0}),
    )
    shares = {share.reason: (share.ratio, share.busy_ratio) for share in found.throttle}
    assert shares == {"sw_power_cap": (0.5, 1.0), "gpu_idle": (0.5, 0.0), "sw_thermal": (0.25, 0.5)}
    assert (found.busy.samples, found.busy.sm_clock_median_mhz) == (2, 1100.0)
    assert MASK not in found.values


def test_the_clock_under_a_limit_is_told_from_the_clock_without_one() -> None:
    cap = float(REASONS["sw_power_cap"])
    found = device(
        (200, {"utilization_ratio": 0.9, MASK: cap, "sm_clock_mhz": 1200.0}),
        (300, {"utilization_ratio": 0.9, MASK: 0.0, "sm_clock_mhz": 1900.0}),
        (400, {"utilization_ratio": 0.0, MASK: cap, "sm_clock_mhz": 300.0}),
        (500, {"utilization_ratio": 0.9, MASK: None, "sm_clock_mhz": 700.0}),
    )
    assert [share.sm_clock_median_mhz for share in found.throttle] == [1200.0]
    assert found.busy.sm_clock_free_median_mhz == 1900.0
    always = device((200, {"utilization_ratio": 0.9, MASK: cap, "sm_clock_mhz": 1200.0})).busy
    assert always.sm_clock_free_median_mhz is None


def test_without_utilization_a_gpu_is_busy_when_its_clocks_are_not_idle() -> None:
    found = device((200, {MASK: 4.0, "power_w": 9.0}), (300, {MASK: 1.0, "power_w": 1.0}))
    assert (found.busy.samples, found.busy.power_median_w) == (1, 9.0)


def test_limits_that_were_not_read_are_none_and_clocks_without_a_limit_have_no_rows() -> None:
    assert device((200, {"utilization_ratio": 1.0, MASK: None})).throttle is None
    assert device((200, {"utilization_ratio": 1.0, MASK: 0.0})).throttle == ()


def test_energy_is_that_between_the_first_steps_start_and_the_last_ones_end() -> None:
    samples = [(t_ms, {"energy_j": 1000.0 + t_ms * 0.2, "power_w": 1.0}) for t_ms in range(0, 1301, 100)]
    energy = device(*samples).energy
    assert energy.total_j == pytest.approx(200.0)
    assert energy.per_step_j == pytest.approx(2.0)
    assert energy.mean_w == pytest.approx(200.0)
    assert energy.covered_ratio == pytest.approx(1.0)


def test_energy_of_what_was_not_covered_is_filled_in_at_the_mean_power() -> None:
    energy = device((300, {"energy_j": 10.0}), (900, {"energy_j": 70.0})).energy
    assert energy.covered_ratio == pytest.approx(0.6)
    assert energy.total_j == pytest.approx(100.0)
    assert msgspec.json.decode(msgspec.json.encode(energy), type=DeviceEnergy) == energy  # no number of numpy's in it


@pytest.mark.parametrize(
    "readings",
    [
        ((300, 10.0),),
        ((300, 10.0), (600, 70.0)),  # less than half of the training
        ((300, 10.0), (900, 5.0)),  # the driver was loaded anew
        ((300, None), (900, None)),
    ],
)
def test_energy_that_cannot_be_told_is_none(readings: tuple[tuple[int, float | None], ...]) -> None:
    assert device(*((t_ms, {"energy_j": joules}) for t_ms, joules in readings)).energy is None


def test_errors_are_counted_from_before_the_first_step_to_after_the_last() -> None:
    found = device(
        (0, {"ecc_corrected_count": 3.0, "ecc_uncorrected_count": None}),
        (500, {"power_w": 1.0}),
        (2000, {"ecc_corrected_count": 5.0}),
    )
    assert found.errors == (ErrorCounter(name="ecc_corrected_count", first=3.0, last=5.0),)
    assert found.values.keys() == {"power_w"}


def test_critical_errors_are_kept_in_their_order_and_are_no_samples_of_the_gpu() -> None:
    found = device((0, {"power_w": 1.0}), (500, {"power_w": 1.0}), (600, {"xid": 31.0}), (1200, {"xid": 79.0}))
    assert found.xids == (31, 79)
    assert found.samples == 1
    assert found.values.keys() == {"power_w"}


def test_what_was_unsupported_in_the_first_sample_is_named_though_later_ones_leave_it_out() -> None:
    found = device((0, {"power_w": None, "temperature_c": 40.0}), (500, {"temperature_c": 41.0}))
    assert found.values["power_w"] is None
    assert found.values["temperature_c"] is not None


def test_distinct_samples_follow_the_drivers_pace_where_it_is_known() -> None:
    samples = [(t_ms, {"utilization_ratio": 1.0}) for t_ms in range(200, 1000, 50)]
    found = device(*samples, utilization_refresh_s=0.2)
    assert (found.samples, found.distinct_samples, found.longest_repeat_samples) == (16, 4, 16)


def test_distinct_samples_are_changes_where_the_drivers_pace_is_not_known() -> None:
    read = (0.1, 0.1, 0.1, 0.5, 0.5, 0.1)
    found = device(*((200 + n, {"utilization_ratio": u}) for n, u in enumerate(read)))
    assert (found.distinct_samples, found.longest_repeat_samples) == (3, 3)
    assert device((200, {"power_w": 1.0})).distinct_samples is None


def test_facts_are_typed_and_damage_in_them_leaves_the_rest() -> None:
    found = device((200, {"power_w": 1.0}), memory_total_bytes=80e9, ecc=True, name="Card", unknown="x")
    assert (found.name, found.facts.memory_total_bytes, found.facts.ecc, found.facts.mig) == ("Card", 80e9, True, None)
    counts = device((200, {"power_w": 1.0}), memory_bus_bits=5120.0, driver_version="999.01").facts
    assert (counts.memory_bus_bits, counts.driver_version) == (5120, "999.01")
    damaged = device((200, {"power_w": 1.0}), memory_total_bytes="much", name="Card")
    assert (damaged.name, damaged.facts.memory_total_bytes) == ("Card", None)


def test_limits_of_a_multiprocessor_are_torchs_of_the_gpu_that_has_the_name_of_its_device() -> None:
    of_torch = {"device.name": "Card", "device.threads_per_warp": 32, "device.registers_per_multiprocessor": 65536}
    of = sampled((200, {"power_w": 1.0}), conditions={"gpu0.name": "Card", **of_torch})
    (found,) = build(of).devices
    assert (found.facts.threads_per_warp_count, found.facts.registers_per_multiprocessor_count) == (32, 65536)
    assert found.facts.threads_per_block_count is None
    of.conditions["gpu0.name"] = "Another"
    assert build(of).devices[0].facts.threads_per_warp_count is None


def test_gpus_stand_in_the_order_of_their_numbers() -> None:
    of = journal()
    for number in (10, 2, 0):
        of.samples.append(Sample(source="nvml", subject=f"gpu{number}", t_ns=500 * MS, values={"power_w": 1.0}))
    assert [found.subject for found in build(of).devices] == ["gpu0", "gpu2", "gpu10"]


def test_a_mask_is_split_into_a_value_for_each_reason() -> None:
    assert reasons_of(0x4 | 0x40 | 1 << 40) == ("sw_power_cap", "hw_thermal")
    values = split({"power_w": 1.0, MASK: 4.0})
    assert values.pop("power_w") == 1.0
    assert values.pop("throttle_sw_power_cap_ratio") == 1.0
    assert set(values.values()) == {0.0}
    assert split({MASK: None, "power_w": 1.0}) == {"power_w": 1.0}
    assert WORDS.keys() == TERMS.keys() == REASONS.keys()
