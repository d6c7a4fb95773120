"""``gpuprof doctor``: what it looks at and how it speaks of absences."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.capture.nvml.inspection import GpuState, MachineGpus
from lightning_gpuprof.cli import doctor_checks as doctor


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
        "CUDA",
    }


TORCH_OF = {
    "old": "cuda = '12.1'\nhip = None\n",
    "new": "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n",
    "rocm": "cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n",
    "cpu": "debug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
}


@pytest.mark.parametrize(
    ("built", "gpus", "state", "value"),
    [
        ("old", MachineGpus(gpus=(GpuState(index=0, name="A", uuid="GPU-a"),)), "ok", "built for 12.1"),
        ("new", MachineGpus(absent="no driver"), "absent", "built for 13.0"),
        ("new", MachineGpus(absent="no answer", hangs=True), "problem", "built for 13.0"),
        ("new", None, "ok", "built for 13.0"),
        ("rocm", MachineGpus(absent="no driver"), "ok", "built for 6.4"),
        ("cpu", MachineGpus(absent="no driver"), "absent", ""),
    ],
)
def test_what_torch_is_built_for_is_read_from_its_files(
    built: str, gpus: MachineGpus | None, state: str, value: str, tmp_path: Path
) -> None:
    (tmp_path / "version.py").write_text(f"from typing import Optional\n__version__ = '2.9'\n{TORCH_OF[built]}")
    cuda = doctor.torch_as_built(tmp_path, gpus)[0]
    assert (cuda.name, cuda.state, cuda.value) == ("CUDA", state, value)


def test_kernels_are_traced_for_a_try_and_a_failure_says_what_it_may_be() -> None:
    def refuses() -> int:
        raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES\nmore")

    assert doctor.cupti(lambda: 3).state == "ok"
    for recorded, why in ((lambda: 0, "recorded no kernel"), (refuses, "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")):
        found = doctor.cupti(recorded)
        assert found.state == "problem"
        assert found.value == why
        assert "ERR_NVGPUCTRPERM" in found.meaning
        assert "LD_LIBRARY_PATH" in found.meaning


@pytest.mark.slow
def test_loading_agrees_with_what_the_files_say() -> None:
    as_built, loaded = ({c.name: c for c in doctor.examine(load=load)} for load in (False, True))
    assert loaded["Kineto"].state == "ok"
    assert as_built == {name: check for name, check in loaded.items() if name != "Kineto"}


def test_the_text_says_how_to_look_closer(printed: Callable[..., str]) -> None:
    assert "gpuprof doctor --load also imports torch" in printed("doctor")


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
