"""``gpuprof completion``: the script as the shells themselves understand it."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.cli.completion import Argument, CommandWords, bash, zsh
from lightning_gpuprof.cli.entries import ENTRIES
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.sinks.trace_table_names import NAMES


def script_of(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def run_in(shell: str, program: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell], input=program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def proposed(script: str, *words: str) -> list[str]:
    """What bash proposes for the last of the words."""
    line = f"COMP_WORDS=({shlex.join(['gpuprof', *words])}); COMP_CWORD={len(words)}"
    return run_in("bash", f'{script}\n{line}\n_gpuprof\nprintf "%s\\n" "${{COMPREPLY[@]}}"\n').split()


def test_bash_proposes_commands_options_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of("bash", capsys)
    assert set(proposed(script, "")) == {*(command.name for command in ENTRIES), "-h", "--help", "--version"}
    assert proposed(script, "comp") == ["compare", "completion"]
    assert proposed(script, "report", "--j") == ["--json"]
    assert proposed(script, "export", "--format", "") == ["csv", "parquet"]
    assert proposed(script, "explain", "input-") == ["input-bound", "input-jitter"]
    assert proposed(script, "trace", "t.json", "--table", "") == [*NAMES, "all"]
    assert proposed(script, "completion", "") == ["bash", "zsh"]


def test_bash_completes_files_where_nothing_else_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of("bash", capsys)
    assert proposed(script, "report", "") == []
    assert proposed(script, "trace", "--html", "") == []
    assert "-o default" in run_in("bash", f"{script}\ncomplete -p gpuprof\n")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_one_the_shell_can_read(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = script_of(shell, capsys)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(script)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_zsh_is_told_of_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of("zsh", capsys)
    assert script.startswith("#compdef gpuprof\n")
    for command in ENTRIES:
        assert f"        {command.name})\n" in script
    assert "'--format[parquet needs pyarrow]:format:(csv parquet)'" in script
    assert "'*:FILE:_files'" in script


def test_json_has_the_words_for_other_shells(printed: Callable[..., str]) -> None:
    found = {one["name"]: one for one in json.loads(printed("completion", "bash", "--json"))}
    assert set(found) == {command.name for command in ENTRIES}
    assert all("--json" in (name for option in one["options"] for name in option["names"]) for one in found.values())
    assert found["explain"]["positionals"][0]["values"] == [rule.id for rule in discover().rules]


def test_words_of_others_are_data_in_the_script() -> None:
    text = 'it\'s [a] $(touch /tmp/x) `b` "c" d:e \\'
    argument = Argument(names=["--odd"], help=text, takes_value=True, values=[])
    one = CommandWords(name="one", summary=text, options=[argument], positionals=[], repeats=False)
    assert run_in(
        "bash", bash([one]) + '\nCOMP_WORDS=(gpuprof one -); COMP_CWORD=2; _gpuprof; echo "${COMPREPLY[@]}"\n'
    )
    script = zsh([one])
    (line,) = (line for line in script.splitlines() if line.lstrip().startswith("'--odd"))
    (word,) = shlex.split(line.rstrip("\\"))
    assert word == '--odd[it\'s \\[a\\] $(touch /tmp/x) `b` "c" d\\:e \\\\]:odd:_files'
