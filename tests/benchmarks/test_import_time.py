import json
import subprocess
from pathlib import Path

import import_time
import pytest


def test_only_the_second_statement_is_timed_as_added() -> None:
    took = import_time.time_once("time.sleep(0.02)", "import time; time.sleep(1)")  # no stall is as long
    assert took.lightning_ms >= 1000
    assert 20 <= took.added_ms < took.lightning_ms


def test_modules_are_listed_longest_first_and_without_what_was_there_before() -> None:
    modules = import_time.longest_modules("import fractions, decimal", "import decimal")
    names = [module.name for module in modules]
    assert "fractions" in names
    assert "decimal" not in names
    assert [module.self_ms for module in modules] == sorted((m.self_ms for m in modules), reverse=True)
    assert all(module.self_ms <= module.cumulative_ms for module in modules)


def test_a_program_that_fails_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        import_time.time_once("import no_such_module_at_all", "pass")


def test_results_are_written_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "import_time.json"
    late = "import time; time.sleep(1)"  # no stall is as long
    light = {"package": "import lightning_gpuprof", "profiler": f"from lightning_gpuprof.cli import doctor; {late}"}
    assert import_time.main(["--rounds", "1", "--json", str(target)], before="import json", programs=light) == 0
    document = json.loads(target.read_text())
    package, profiler = (result["added_ms"]["median"] for result in document["results"])
    assert 0 < package < 1000 < profiler
    assert any(module["name"].startswith("lightning_gpuprof") for module in document["modules"])
    assert light["profiler"] in capsys.readouterr().out
