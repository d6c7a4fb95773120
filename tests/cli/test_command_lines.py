"""Errors of commands and configurations: our line first, never more than ten lines."""

import sys
from pathlib import Path

import pytest
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel
from python_process import run_python

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.cli.doctor_checks import conclusion, examine
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import GpuProfError, answer_before_the_parser, note_unknown_arguments


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "A"], "compare needs B (the later run"),
        (["compare"], "compare needs A (the earlier run"),
        (["report"], "report needs DIR (folder of a run"),
        (["compare", "A", "B", "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_what_is_missing_is_named_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    first, way_out = capsys.readouterr().err.splitlines()
    assert first.startswith(f"gpuprof: {words}")
    assert way_out == f"  gpuprof {arguments[0]} --help shows what it takes"


def test_a_wrong_command_names_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explainn"])
    assert capsys.readouterr().err.splitlines()[0] == "gpuprof: there is no command 'explainn'. Did you mean explain?"


@pytest.mark.parametrize(("wrong", "meant"), [("window", "windows"), ("report", "reports"), ("verbos", "verbose")])
def test_a_wrong_argument_names_the_one_that_was_meant(wrong: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"GpuProfiler has no argument '{wrong}'. Did you mean {meant}") as found:
        GpuProfiler(**{wrong: 5})  # type: ignore[arg-type]
    assert isinstance(found.value, GpuProfError)


WRONG = {
    "trace: {class_path: lightning_gpuprof.TraceConfig, init_args: {active: 0}}": "trace.active must be",
    "log_every_n_steps: 0": "log_every_n_steps must be an integer of at least 1",
    "windows: [-5]": "windows must be optimizer steps, 0 or later, got -5",
    "windows: [5]": "windows must be optimizer steps, 0 or later, got -7",
}
OVERRIDE = "--trainer.callbacks.windows=[-7]"
"""What the last of them is given in place of its file's value."""


def config_of(folder: Path, line: str) -> Path:
    """A configuration in which the profiler is given a line."""
    config = folder / "wrong.yaml"
    config.write_text(
        "trainer:\n  logger: false\n  callbacks:\n    - class_path: lightning_gpuprof.GpuProfiler\n"
        f"      init_args:\n        {line}\n"
    )
    return config


@pytest.mark.parametrize(("line", "words"), WRONG.items())
def test_a_wrong_value_in_yaml_is_our_line_and_at_most_ten_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # another one is put into its place
    arguments = ["fit", "--config", str(config_of(tmp_path, line)), *([OVERRIDE] if "-7" in words else [])]
    monkeypatch.setattr(sys, "argv", ["train", *arguments])
    with pytest.raises(Exception, match=words) as ended:
        LightningCLI(BoringModel, args=arguments)
    capsys.readouterr()
    sys.excepthook(ended.type, ended.value, ended.tb)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"gpuprof: {words}")
    in_file = OVERRIDE not in arguments
    assert lines[1] == f"  in {f'{arguments[2]}:6' if in_file else 'the configuration of GpuProfiler'}"
    assert len(lines) <= 10


PROGRAM = (
    "from lightning.pytorch.cli import LightningCLI\nfrom lightning.pytorch.demos.boring_classes import *\n"
    "LightningCLI(BoringModel)\n"
)


def refused(
    folder: Path,
    lines: list[str],
    *arguments: str,
    before: str = "",
    name: str = "GpuProfiler",
    named: Path = Path("configs/wrong.yaml"),
    **environment: str,
) -> list[str]:
    """What a program of LightningCLI says of a configuration that it refuses, named from the folder above it."""
    (folder / "configs").mkdir()
    program, config = folder / "program.py", config_of(folder / "configs", "\n        ".join(lines))
    program.write_text(before + PROGRAM)
    config.write_text(config.read_text().replace("GpuProfiler", name))
    done = run_python(program, "fit", "--config", named, *arguments, code=2, cwd=folder, **environment)
    return done.stderr.splitlines()


def test_misspelt_names_in_yaml_are_all_that_is_said(tmp_path: Path) -> None:
    host = "{class_path: lightning_gpuprof.HostConfig, init_args: {intervals: 1.0}}"
    lines = refused(tmp_path, ["windws: [200]", "trace: {warmups: 3}", f"host: {host}", "reports: html"])
    where = "  in configs/wrong.yaml"
    said = lines[lines.index(where) - 1 :]
    assert said[:2] == ["gpuprof: GpuProfiler has no argument 'windws'. Did you mean windows?", where]
    assert "gpuprof: GpuProfiler.trace has no argument 'warmups'. Did you mean warmup?" in said
    assert "gpuprof: GpuProfiler.host has no argument 'intervals'. Did you mean interval_s?" in said
    assert 'gpuprof: reports must be a list of names, got \'html\'. Write ["terminal", "html"].' in said
    assert len(lines) <= 10
    assert not any(line.startswith("usage:") for line in lines)


@pytest.mark.slow
def test_a_misspelt_name_is_all_that_is_said_where_the_class_is_imported_before(tmp_path: Path) -> None:
    config = tmp_path / "configs/wrong.yaml"
    lines = refused(tmp_path, ["windws: [200]"], before="from lightning_gpuprof import GpuProfiler\n", named=config)
    where = f"  in {config}"
    assert lines[:2] == ["gpuprof: GpuProfiler has no argument 'windws'. Did you mean windows?", where]
    assert len(lines) <= 10


@pytest.mark.slow
def test_values_of_another_type_in_yaml_are_all_that_is_said(tmp_path: Path) -> None:
    lines = refused(tmp_path, ["windows: [abc]", "trace: {with_stack: sure}"])
    steps = "windows must be optimizer steps, 0 or later, got 'abc'. Write 200, (200, 205)"
    assert lines[0].startswith(f"gpuprof: {steps}")
    assert lines[2] == "gpuprof: trace.with_stack must be true or false, got 'sure'"
    assert len(lines) <= 5


@pytest.mark.slow
def test_a_misspelt_class_in_yaml_is_all_that_is_said(tmp_path: Path) -> None:
    lines = refused(tmp_path, ["windows: [200]"], "--trainer.default_root_dir=runs.yaml", name="GpuProfilr")
    where = "  in configs/wrong.yaml"
    assert lines[:2] == ["gpuprof: lightning_gpuprof has no class 'GpuProfilr'. Did you mean GpuProfiler?", where]
    assert len(lines) <= 10


@pytest.mark.slow
def test_with_debugging_the_parser_speaks_as_well_and_the_name_comes_last(tmp_path: Path) -> None:
    lines = refused(tmp_path, ["trace: {warmups: 3}"], GPUPROF_DEBUG="1")
    assert lines[-2] == "gpuprof: GpuProfiler.trace has no argument 'warmups'. Did you mean warmup?"
    assert any(line.startswith("usage:") for line in lines)


@pytest.mark.parametrize(
    ("line", "environment"),
    [
        ("trace: {class_path: lightning_gpuprof.TraceConfig, init_args: 5}", {}),
        ("windws: [200]", {"JSONARGPARSE_DEBUG": "true"}),
    ],
)
def test_the_parser_s_own_error_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    environment: dict[str, str],
) -> None:
    """Of options that are none, and for who debugs the parser."""
    import jsonargparse
    import yaml  # noqa: F401 - it is looked for

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["train", str(config_of(tmp_path, line))])
    restore = answer_before_the_parser("GpuProfiler", ["trace", "trace.active"], {}, lambda: None)
    with pytest.raises(
        jsonargparse.ArgumentError if environment else SystemExit, match="windws" if environment else "2"
    ):
        jsonargparse.ArgumentParser(exit_on_error=True).error("windws, init_args")
    restore()
    said = capsys.readouterr().err
    assert "gpuprof:" not in said
    assert environment or "error: windws, init_args" in said
    note_unknown_arguments("GpuProfiler", ["trace", "trace.active"])  # at the end of the program: it must not fail


@pytest.mark.parametrize("message", ["max_epochs: must be a number", "warmups of another class"])
def test_what_else_is_wrong_is_said_by_the_parser_itself(
    tmp_path: Path, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import jsonargparse
    import yaml  # noqa: F401 - it is looked for

    config = config_of(tmp_path, "trace: {warmups: 3}" if "max" in message else "trace: {warmup: 3}")
    monkeypatch.setattr(sys, "argv", ["train", str(config)])
    before = jsonargparse.ArgumentParser.error
    told: list[bool] = []
    restore = answer_before_the_parser("GpuProfiler", ["trace", "trace.warmup"], {}, lambda: told.append(True))
    with pytest.raises(SystemExit):
        jsonargparse.ArgumentParser(exit_on_error=True).error(message)
    assert f"error: {message}" in capsys.readouterr().err
    assert not told
    restore()
    assert jsonargparse.ArgumentParser.error is before


def test_a_configuration_without_a_misspelt_name_is_not_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import jsonargparse  # noqa: F401 - it is looked for
    import yaml  # noqa: F401

    right, other, broken = (tmp_path / f"{name}.yaml" for name in ("right", "other", "broken"))
    groups = "trace: {active: 1}, host: false, thresholds: {input-bound: {least_ratio: 0.1}}"
    right.write_text(
        f"callbacks: [{{class_path: a.GpuProfiler, init_args: {{windows: 5, {groups}}}}}, {{class_path: b.C}}]"
    )
    other.write_text("model: {class_path: a.Model, init_args: {windws: 5}}")
    broken.write_text("a: [")
    monkeypatch.setattr(sys, "argv", ["train", f"--config={right}", str(other), str(broken), str(tmp_path / "no.yaml")])
    note_unknown_arguments("GpuProfiler", ["windows", "trace", "trace.active", "host", "host.interval_s", "thresholds"])
    assert capsys.readouterr().err == ""


def test_doctor_begins_with_its_conclusion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    first = " ".join(capsys.readouterr().out.split())
    assert first.startswith("Works here: step times, phases and callbacks")


def test_the_conclusion_names_what_is_to_be_repaired() -> None:
    checks = examine()
    broken = [*checks[:-1], type(checks[-1])(area="environment", name="CUDA_LAUNCH_BLOCKING", state="problem")]
    assert conclusion(broken)[-1].endswith("CUDA_LAUNCH_BLOCKING.")
    assert "problem" in conclusion(broken)[-1]
