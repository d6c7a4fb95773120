"""``gpuprof doctor``: whether TensorBoard can show our tab."""

import json
from collections.abc import Callable

import pytest

from lightning_gpuprof import __version__
from lightning_gpuprof.cli.doctor_checks import TAB, tab_check
from lightning_gpuprof.installed import EntryPoint

OWN = EntryPoint("gpuprof", "json:loads")
OTHER = EntryPoint("torch_profiler", "json:loads")
BROKEN = EntryPoint("gpuprof", "json:nothing_of_this_name")


def fails(name: str) -> object:
    raise TypeError("Descriptors cannot be created directly")


def test_a_tab_that_loads_is_told_with_both_versions() -> None:
    loaded: list[str] = []
    check = tab_check("2.21.0", [OTHER, OWN], loaded.append)
    assert (check.state, check.value) == ("ok", f"{__version__} in TensorBoard 2.21.0")
    assert loaded == ["lightning_gpuprof.tensorboard_plugin.plugin"]


def test_without_tensorboard_there_is_no_tab() -> None:
    check = tab_check(None, [OWN], fails)
    assert check.state == "absent"
    assert "pip install tensorboard" in check.meaning


def test_a_missing_entry_point_is_a_problem() -> None:
    check = tab_check("2.21.0", [OTHER])
    assert check.state == "problem"
    assert "reinstall lightning-gpuprof" in check.meaning


def test_a_plugin_that_cannot_be_loaded_is_a_problem_that_says_why() -> None:
    check = tab_check("2.21.0", [OWN], fails)
    assert check.state == "problem"
    assert "TypeError: Descriptors cannot be created directly" in check.meaning
    assert tab_check("2.21.0", [BROKEN], str).state == "problem"


def test_the_tab_of_this_machine_is_in_text_and_json(printed: Callable[..., str]) -> None:
    pytest.importorskip("tensorboard")
    (tab,) = (check for check in json.loads(printed("doctor", "--json")) if check["name"] == TAB)
    assert (tab["area"], tab["state"]) == ("plugins", "ok")
    assert tab["value"] in printed("doctor")
