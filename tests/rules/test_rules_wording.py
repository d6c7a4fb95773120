from __future__ import annotations

import pytest

from lightning_gpuprof.rules.wording import counted, cpus, listed, millis, percent, seconds


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
        (seconds(12345.0), "12,300 s"),
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
