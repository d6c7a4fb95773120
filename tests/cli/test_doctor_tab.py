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


@pytest.mark.parametrize(
    ("tensorboard", "point", "state", "says"),
    [
        pytest.param(None, OWN, "absent", "pip install tensorboard", id="no TensorBoard"),
        pytest.param("2.21.0", OTHER, "problem", "reinstall lightning-gpuprof", id="no entry point"),
        pytest.param("2.21.0", OWN, "problem", "TypeError: Descriptors cannot be created directly", id="broken import"),
        pytest.param("2.21.0", BROKEN, "problem", "", id="broken entry point"),
    ],
)
def test_a_tab_that_is_not_there_says_why(tensorboard: str | None, point: EntryPoint, state: str, says: str) -> None:
    check = tab_check(tensorboard, [point], str if point is BROKEN else fails)
    assert check.state == state
    assert says in check.meaning


def test_the_tab_of_this_machine_is_in_text_and_json(printed: Callable[..., str]) -> None:
    pytest.importorskip("tensorboard")
    (tab,) = (check for check in json.loads(printed("doctor", "--json")) if check["name"] == TAB)
    assert (tab["area"], tab["state"]) == ("plugins", "ok")
    assert tab["value"] in printed("doctor")
