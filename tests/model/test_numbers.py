"""Numbers for people."""

import math

import pytest

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.numbers import counted, cpus, listed, millis, numbered, percent, round_number, seconds


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (7, "7"),
        (12.345, "12.3"),
        (0.0012345, "0.00123"),
        (999.96, "1,000"),
        (1234.5, "1,230"),
        (-4.5678, "-4.57"),
        (123456789, "123,000,000"),
        (1.2e-9, "1.20e-09"),
        (None, numbers.ABSENT),
        (math.nan, numbers.ABSENT),
        (math.inf, numbers.ABSENT),
    ],
)
def test_three_significant_digits(value: float | None, shown: str) -> None:
    assert numbers.significant(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(7e-6, "<0.001"), (0.0, "0"), (0.0123, "0.0123"), (None, numbers.ABSENT)])
def test_next_to_nothing_in_a_column_is_not_a_row_of_zeros(value: float | None, shown: str) -> None:
    assert numbers.fixed(value) == shown


@pytest.mark.parametrize(
    ("ratio", "shown"), [(0.4336, "43.4 %"), (0, "0 %"), (1e-5, "<0.1 %"), (1, "100.0 %"), (None, numbers.ABSENT)]
)
def test_percent_has_one_decimal_and_never_rounds_something_to_nothing(ratio: float | None, shown: str) -> None:
    assert numbers.exact_percent(ratio) == shown


@pytest.mark.parametrize(
    ("field", "value", "label", "shown"),
    [
        ("power_w", 71.24, "power", "71.2 W"),
        ("utilization_ratio", 0.5, "utilization", "50.0 %"),
        ("memory_used_bytes", 1.5 * 2**30, "memory used", "1.50 GiB"),
        ("process.rss_bytes_peak", 2**20, "process RSS peak", "1 MiB"),
        ("process.cpu_cpus_mean", 1.5, "process CPU mean", "1.5 CPUs"),
        ("sm_clock_mhz", 1980.0, "SM clock", "1,980 MHz"),
        ("timing_us_per_step", 8.25, "timestamps", "8.25 µs/step"),
        ("report_s", 0.25, "making the report", "250 ms"),
        ("hooks_s", 0.57, "start and end", "570 ms"),
        ("edges_per_step", 61.5, "timestamps per step", "61.5"),
        ("power_w", None, "power", numbers.ABSENT),
    ],
)
def test_a_field_says_its_unit_once(field: str, value: float | None, label: str, shown: str) -> None:
    assert numbers.label(field) == label
    assert numbers.quantity(field, value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.34, "340 ms"), (83.44, "83.4 s"), (754.0, "12.6 min"), (18720, "5.20 h")]
)
def test_durations_take_the_unit_that_suits_them(value: float, shown: str) -> None:
    assert numbers.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.05, "ratio", "5.0 %"),
        (12.0, "ms", "12 ms"),
        (4, "", "4"),
        (2048, "bytes", "2 KiB"),
        (1.0, "CPUs", "1 CPU"),
        (0.00524, "CPUs", "0.01 CPUs"),
        (10.0, "CPUs", "10 CPUs"),
    ],
)
def test_evidence_has_its_unit_beside_it(value: float, unit: str, shown: str) -> None:
    assert numbers.with_unit(value, unit) == shown


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((12.0, 12.3), "12.0 to 12.3"),
        ((1234.0, 2345.6), "1,230 to 2,350"),
        ((12.001, 12.013), "12.00 to 12.01"),
        ((5.0, 5.0), "5.00 to 5.00"),
        ((0.0, 0.5), "0 to 0.500"),
        ((0.0123, 0.0124), "0.0123 to 0.0124"),
        (None, ""),
        ((float("nan"), 1.0), ""),
    ],
)
def test_an_interval_has_digits_that_tell_its_ends_apart(ends: tuple[float, float] | None, shown: str) -> None:
    assert numbers.interval(ends) == shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(0.834), "83 %"),
        (percent(0.0324), "3.2 %"),
        (percent(0.0996), "10 %"),
        (percent(0.0), "0 %"),
        (percent(1.0), "100 %"),
        (millis(0.8534), "0.853 ms"),
        (millis(41.23), "41.2 ms"),
        (millis(412.3), "412 ms"),
        (millis(999.6), "1.00 s"),
        (millis(4210.0), "4.21 s"),
        (millis(0.0), "0 ms"),
        (seconds(0.34), "340 ms"),
        (seconds(12345.0), "3.43 h"),
        (cpus(2.0), "2 CPUs"),
        (cpus(1.0), "1 CPU"),
        (cpus(0.9), "0.9 CPUs"),
        (counted(1, "step"), "1 step"),
        (counted(1200, "step"), "1,200 steps"),
        (listed(["a"]), "a"),
        (listed(["a", "b"]), "a and b"),
        (listed(["a", "b", "c"]), "a, b and c"),
    ],
)
def test_numbers_read_as_people_write_them(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [(0.123, "+12.3 %"), (-0.5, "-50.0 %"), (0.0001, "<0.1 %"), (-0.0001, "<0.1 %"), (0.0, "0 %"), (None, "-")],
)
def test_a_change_has_a_sign_unless_it_is_next_to_nothing(change: float | None, expected: str) -> None:
    assert numbers.signed_percent(change) == expected


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([3], "rank 3"),
        ([3, 2], "ranks 2 and 3"),
        ([0, 2], "ranks 0 and 2"),
        ([5, 1, 2, 3], "ranks 1 to 3 and 5"),
        ([0, 4, 8, 9, 10], "ranks 0, 4 and 8 to 10"),
        (list(range(3, 64, 8)), "ranks 3, 11, 19, 27, 35, 43, 51 and 59"),
        ([one for one in range(40) if one % 4 < 2], "ranks 0, 1, 4, 5, 8, 9, 12, 13 and 12 more"),
        (list(range(3, 1024, 8)), "ranks 3, 11, 19, 27 and 124 more"),
    ],
)
def test_things_are_named_by_their_numbers(numbers: list[int], said: str) -> None:
    assert numbered("rank", numbers) == said


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (1, 1, 1),
        (7, 7, 7),
        (10, 10, 10),
        (11, 12, 10),
        (12, 12, 12),
        (108, 120, 100),
        (46, 50, 40),
        (420, 500, 400),
        (96, 100, 80),
    ],
)
def test_settings_are_numbers_that_people_choose(value: int, up: int, down: int) -> None:
    assert round_number(value) == up
    assert round_number(value, down=True) == down
