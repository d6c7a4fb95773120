"""Environment variables that switch: what is on, what is off, and what is said."""

import warnings

import pytest

from lightning_gpuprof.capture.switches import GPUPROF, LIVE, is_switched_on
from lightning_gpuprof.factory import lightning_callbacks


@pytest.mark.parametrize(
    ("value", "on"),
    [("1", True), ("true", True), (" YES ", True), ("on", True), ("", False), ("0", False), ("No", False)],
)
def test_known_values_switch_without_a_word(value: str, on: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_switched_on(GPUPROF, {GPUPROF: value}) is on
        assert not is_switched_on(GPUPROF, {})


@pytest.mark.parametrize("name", [GPUPROF, LIVE])
def test_a_value_that_means_nothing_is_warned_of_and_is_off(name: str) -> None:
    with pytest.warns(RuntimeWarning) as reported:
        assert not is_switched_on(name, {name: "maybe"})
    assert [str(warning.message) for warning in reported] == [
        f"gpuprof: {name}='maybe' is ignored, as if it were not set: "
        "accepted are 1, true, yes, on to switch on, 0, false, no, off to switch off"
    ]


def test_no_profiler_comes_of_a_value_that_means_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GPUPROF, "maybe")
    with pytest.warns(RuntimeWarning, match="GPUPROF='maybe' is ignored"):
        assert lightning_callbacks() == []
