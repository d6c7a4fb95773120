"""The ``gpuprof`` command as a shell sees it: help, version, errors, exit codes."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from python_process import run_python
from saved_runs import save_run

import lightning_gpuprof
from lightning_gpuprof import __version__
from lightning_gpuprof.cli.main import ENTRIES, main
from terminal_screen import run_in_terminal, screen

ROOMS = {file.stem for file in Path(lightning_gpuprof.__file__).parent.iterdir() if not file.name.startswith("_")}
HEAVY = {"torch", "lightning", "pytorch_lightning", "tensorboard", "pynvml", "numpy", "rich", "jsonargparse", "plotly"}


def gpuprof(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return run_python("-m", "lightning_gpuprof", *words, code=None, **environment)


def imported_by(*words: str) -> set[str]:
    """Modules that a command imports, ours without the package's name."""
    code = (
        f"import sys; from lightning_gpuprof.cli.main import main\ntry: main({list(words)})\nexcept SystemExit: pass\n"
    )
    code += "print(list(sys.modules), file=sys.stderr)"
    done = run_python("-c", code)
    return {name.removeprefix("lightning_gpuprof.") for name in ast.literal_eval(done.stderr.splitlines()[-1])}


def test_help_lists_every_command_examples_and_exit_codes() -> None:
    done = gpuprof("--help")
    assert done.returncode == 0
    for command in ENTRIES:
        assert command.name in done.stdout
    assert "examples:" in done.stdout
    assert "exit codes:" in done.stdout
    assert done.stderr == ""


def test_the_list_of_commands_imports_none_of_them() -> None:
    names = [entry.load().__class__.__module__ for entry in ENTRIES]
    assert names == ["lightning_gpuprof.cli.command"] * len(ENTRIES)
    rooms = imported_by("--help")
    assert {name for name in rooms if name.partition(".")[0] in ROOMS} == {
        "cli",
        "cli.command",
        "cli.main",
        "errors",
    }
    assert not {"msgspec", "dataclasses", "inspect", "difflib", "traceback", *HEAVY} & rooms


@pytest.mark.parametrize("words", [["explain"], ["completion", "bash"], ["doctor", "--json"]], ids=" ".join)
def test_lists_and_checks_import_no_rule_no_analysis_and_nothing_to_draw(words: list[str]) -> None:
    rooms = imported_by(*words)
    assert not HEAVY & rooms
    makers = ("rules.", "analyze.", "trace.", "pipeline", "run_folder", "job_ranks")
    ours = {name for name in rooms if name.startswith(makers)}
    assert not ours - {"rules.catalogue", "rules.files"}
    assert not {"model.metrics", "model.report", "sinks.tables", "sinks.console"} & rooms


def test_a_page_of_a_rule_imports_no_other_rule() -> None:
    found = imported_by("explain", "input-bound")
    assert not {"importlib.metadata", "difflib"} & found
    rules = {name for name in found if name.startswith("rules.input.")}
    assert "rules.input.input_bound" in rules
    assert "rules.input.single_process_loading" not in rules


def test_facts_of_a_trace_need_no_analysis_no_rules_and_nothing_to_draw(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.1.pt.trace.json"
    trace.write_text('{"traceEvents": []}')
    rooms = imported_by("trace", str(trace), "--json")
    assert "trace.reader" in rooms
    assert not {"trace.analysis", "rules.base", "sinks.tables", "cli.trace_outputs"} & rooms
    assert "sinks.trace_html" not in imported_by("trace", str(trace))


def test_a_page_of_a_run_is_not_imported_for_its_json(tmp_path: Path) -> None:
    rooms = imported_by("report", "--json", str(save_run(tmp_path / "run")))
    assert "analyze.metrics" in rooms
    assert not {"sinks.terminal", "sinks.terminal_screen", "sinks.html"} & rooms


@pytest.mark.parametrize("command", ENTRIES, ids=lambda command: command.name)
def test_each_command_has_help_with_examples(
    command: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    name = getattr(command, "name", "")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"gpuprof {name}" in shown
    assert "examples:" in shown
    assert "--json" in shown
    assert "default: null" not in shown
    assert "default: False" not in shown
    assert max(map(len, shown.partition("examples:")[0].splitlines())) <= 100


def test_version_is_the_packages() -> None:
    done = gpuprof("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"gpuprof {__version__}"


@pytest.mark.parametrize(
    "words", [[], ["nonsense"], ["report"], ["compare", "only-one"], ["report", "x", "--nonsense"]]
)
def test_wrong_words_end_with_exit_code_2_and_a_hint(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert "--help" in captured.err
    assert captured.out == ""


def test_an_error_is_one_line_with_exit_code_2_and_no_stack_trace(tmp_path: Path) -> None:
    done = gpuprof("report", str(tmp_path / "nowhere"), GPUPROF_DEBUG="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpuprof: there is no ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [("--debug", "report"), ("report", "--debug"), ("report",)], ids=" ".join)
def test_the_debug_switch_shows_the_stack_trace(tmp_path: Path, words: tuple[str, ...]) -> None:
    by_variable = "" if "--debug" in words else "1"
    done = gpuprof(*words, str(tmp_path / "nowhere"), GPUPROF_DEBUG=by_variable)
    assert "Traceback" in done.stderr
    assert "ReportError" in done.stderr


def test_a_reader_that_goes_away_causes_no_stack_trace() -> None:
    command = f"{sys.executable} -m lightning_gpuprof explain | head -c 1 > {os.devnull}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("columns", [80, 100])
def test_a_report_fits_the_terminal(tmp_path: Path, columns: int) -> None:
    command = [sys.executable, "-m", "lightning_gpuprof", "report", str(save_run(tmp_path / "run")), "--all"]
    code, written = run_in_terminal(command, columns=columns, environ={"NO_COLOR": "1" if columns == 80 else ""})
    lines = screen(written)
    assert code == 0
    assert columns - 8 < max(map(len, lines[: lines.index("Next step")])) <= columns
    assert ("\x1b[" in written) is (columns == 100)


def test_reports_and_comparisons_need_neither_torch_nor_lightning(tmp_path: Path) -> None:
    folder = save_run(tmp_path / "run")
    program = (
        "import sys\n"
        "from lightning_gpuprof.cli.main import main\n"
        f"assert main(['compare', {str(folder)!r}, {str(folder)!r}]) == 0\n"
        f"assert main(['report', {str(folder)!r}]) == 0\n"
        "heavy = {'torch', 'lightning', 'pytorch_lightning', 'tensorboard', 'pynvml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    run_python("-c", program)
