"""``gpuprof doctor``: what it looks at and how it speaks of absences."""

import json
from collections.abc import Callable

import pytest

from lightning_gpuprof.cli import doctor


def test_every_absence_and_problem_says_what_it_means() -> None:
    checks = doctor.examine()
    assert [check.name for check in checks if check.state != "ok" and not check.meaning] == []


def test_all_areas_are_looked_at() -> None:
    checks = doctor.examine()
    assert {check.area for check in checks} >= {"python", "packages", "host", "torch", "nvml", "plugins"}
    assert {check.name: check.area for check in checks}["/dev/shm"] == "host"


def test_every_dependency_of_this_package_is_named() -> None:
    named = {check.name for check in doctor.examine()}
    assert named >= {
        "torch",
        "lightning",
        "tensorboard",
        "torch-tb-profiler",
        "nvidia-ml-py",
        "msgspec",
        "isal",
        "CUPTI",
    }


def test_json_and_text_name_the_same_things(printed: Callable[..., str]) -> None:
    checks = json.loads(printed("doctor", "--json"))
    text = printed("doctor")
    assert [check["name"] for check in checks if check["name"] not in text] == []
    assert {check["state"] for check in checks} <= {"ok", "absent", "problem"}


def test_blocking_launches_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    assert "problem" in {c.state for c in doctor.examine() if c.name == "CUDA_LAUNCH_BLOCKING"}


def test_a_switch_that_means_nothing_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPROF", "maybe")
    monkeypatch.setenv("GPUPROF_LIVE", "1")
    switches = {c.name: c for c in doctor.examine() if c.name.startswith("GPUPROF")}
    assert switches["GPUPROF"].state == "problem"
    assert "accepted are 1, true, yes, on" in switches["GPUPROF"].meaning
    assert switches["GPUPROF_LIVE"].state == "ok"
