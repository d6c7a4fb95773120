from pathlib import Path

import pytest

from lightning_gpuprof.capture.host.sources import Roots
from lightning_gpuprof.cli.check import Check
from lightning_gpuprof.cli.doctor_checks import host_checks


def checks(root: Path, files: dict[str, str], environ: dict[str, str] | None = None) -> dict[str, Check]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    roots = Roots(proc=root / "proc", sys=root / "sys", shm=root / "shm", root=root / "slash")
    found = host_checks(roots, environ or {}, lambda: frozenset(range(8)), lambda: 64)
    return {check.name: check for check in found}


def test_a_machine_that_tells_nothing_is_all_absent_with_what_that_means(tmp_path: Path) -> None:
    found = checks(tmp_path, {})
    absent = {name for name, check in found.items() if check.state == "absent"}
    assert absent >= {"NUMA nodes", "control groups", "pressure (PSI)", "waiting for a CPU (schedstat)"}
    assert found["/dev/shm"].state == "problem"
    assert [check.name for check in found.values() if check.state != "ok" and not check.meaning] == []


def test_limits_of_a_container_are_named(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    found = checks(
        tmp_path,
        {
            "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
            "proc/self/mountinfo": "22 1 0:5 / /proc rw - proc proc rw,hidepid=2\n",
            "sys/fs/cgroup/cgroup.procs": "",
            "sys/fs/cgroup/cpu.max": "250000 100000\n",
            "sys/fs/cgroup/memory.max": f"{8 << 30}\n",
            "slash/.dockerenv": "",
        },
    )
    shown = {name: check.value for name, check in found.items()}
    assert shown["CPUs of the machine"] == "64"
    assert shown["CPUs of the affinity"] == "8"
    assert shown["usable CPUs"] == "2.50"
    assert "quota" in found["usable CPUs"].meaning
    assert (shown["control groups"], shown["CPU quota"], shown["memory limit"]) == ("v2", "2.50 CPUs", "8 GiB")
    assert (shown["container"], shown["hidepid of /proc"]) == ("docker", "2")
    assert found["pressure (PSI)"].state == "ok"


@pytest.mark.parametrize("name", ["CPU quota", "memory limit"])
def test_no_limit_is_said_to_be_none(tmp_path: Path, name: str) -> None:
    assert checks(tmp_path, {})[name].value == "none"
