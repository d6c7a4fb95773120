"""Everything works where torch-tb-profiler, and pandas that comes with it, are not installed."""

import json
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

ABSENT = ("torch_tb_profiler", "pandas")
HERE = Path(__file__)
PROGRAM = """
import json, sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from planted_runs import GpuProfiler, fit
from log_directories import Tab
from tensorboard import default
import patience
from lightning_gpuprof.cli import doctor_checks as doctor

patience.begin()
folder = Path(sys.argv[1])
profiler = GpuProfiler(windows=[(10, 11)], nvml=False)
report = fit(folder, profiler=profiler)
plugins = [plugin.__module__.partition(".")[0] for plugin in default.get_dynamic_plugins()]
runs = Tab(folder).get("runs").json["rows"]
view = Tab(folder).get("view", run=runs[0]["name"], view="overview").json["html"]
print(json.dumps({
    "there": [name for name in ("torch_tb_profiler", "pandas") if find_spec(name)],
    "steps": report.steps.count,
    "windows": [window.problem for window in report.windows],
    "caveats": report.validity.caveats,
    "files": sorted(path.suffix for path in profiler.folder.iterdir()),
    "plugins": plugins,
    "view": len(view),
    "absent": [f"{check.name}: {check.meaning}" for check in doctor.examine() if check.state == "absent"],
    "problems": [check.name for check in doctor.examine() if check.state == "problem"],
}))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def environment_without(folder: Path) -> Path:
    """The interpreter of an environment with all packages of this one but two."""
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.replace("-", "_").startswith(ABSENT):
            (packages / entry.name).symlink_to(entry)
    venv.create(folder / "venv")
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # `addsitedir` also reads the .pth files there: this project itself is installed through one.
    (site / "shared.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n")
    return folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("without")
    python = environment_without(folder)
    paths = [str(HERE.parents[2]), str(HERE.parent), str(HERE.parents[1] / "tensorboard_plugin")]
    program = f"import sys; sys.path[:0] = {[*paths, str(HERE.parents[1])]!r}\n{PROGRAM}"
    command = [str(python), "-c", program, str(folder / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def test_the_run_is_measured_with_its_window_and_all_reports(found: dict[str, Any]) -> None:
    assert found["there"] == []
    assert found["steps"] == 20
    assert found["windows"] == [""]
    assert not any("torch" in caveat or "tensorboard" in caveat for caveat in found["caveats"])
    assert {".json", ".html", ".jsonl"} <= set(found["files"])


def test_the_own_tab_is_there_and_shows_the_run(found: dict[str, Any]) -> None:
    assert "lightning_gpuprof" in found["plugins"]
    assert found["view"] > 1000


def test_the_doctor_says_so_in_one_line(found: dict[str, Any]) -> None:
    assert [line for line in found["absent"] if "profiler tab" in line or "torch-tb-profiler" in line] == [
        "torch-tb-profiler: TensorBoard has no PyTorch Profiler tab; Perfetto opens the traces, too"
    ]
    assert found["problems"] == []
