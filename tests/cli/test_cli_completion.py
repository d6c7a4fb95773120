"""``gpuprof completion``: the script as the shells themselves understand it."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import shtab

from lightning_gpuprof.cli import explain
from lightning_gpuprof.cli.main import ENTRIES
from lightning_gpuprof.sinks.trace_table_names import NAMES


@pytest.fixture
def proposed(printed: Callable[..., str], tmp_path: Path) -> Callable[..., list[str]]:
    """What bash proposes for the last of some words, in a folder with one file."""
    (tmp_path / "a file.json").touch()

    def of(*words: str) -> list[str]:
        line = f"COMP_WORDS=({shlex.join(['gpuprof', *words])}); COMP_CWORD={len(words)}; _shtab_gpuprof"
        program = f'{printed("completion", "bash")}\n{line}\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n'
        done = subprocess.run(
            ["bash"], input=program, capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return of


def test_bash_proposes_commands_options_values_and_files(proposed: Callable[..., list[str]]) -> None:
    assert proposed("") == [command.name for command in ENTRIES]
    assert proposed("comp") == ["compare", "completion"]
    assert proposed("report", "--j") == ["--json"]
    assert proposed("export", "--format", "") == ["csv", "parquet", "sqlite"]
    assert proposed("explain", "input-") == ["input-bound", "input-jitter"]
    assert proposed("trace", "t.json", "--table", "") == [*NAMES, "all"]
    assert proposed("completion", "") == list(shtab.SUPPORTED_SHELLS)
    assert proposed("report", "") == proposed("trace", "--html", "") == ["a file.json"]


def test_what_a_shell_would_run_is_not_proposed(
    proposed: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids of rules may be other people's, and bash expands what it proposes."""
    monkeypatch.setitem(explain.COMMAND.values, "rule", lambda: ["$(touch x)", "it's", "fine"])  # type: ignore[arg-type]
    assert proposed("explain", "") == ["fine"]


@pytest.mark.parametrize("shell", shtab.SUPPORTED_SHELLS)
def test_each_shell_can_read_its_script_which_has_every_command(
    shell: str, printed: Callable[..., str], tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text(printed("completion", shell))
    assert all(command.name in script.read_text() for command in ENTRIES)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_json_has_the_script(printed: Callable[..., str]) -> None:
    assert json.loads(printed("completion", "bash", "--json"))["script"] == printed("completion", "bash")
