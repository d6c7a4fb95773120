"""``gpuprof compare``: paths in, words and an exit code out."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from saved_runs import save_run

from lightning_gpuprof.cli.compare import EXIT_CODES, parse_share
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.errors import ArgumentError


@pytest.mark.parametrize(
    ("after_ms", "outcome", "code"), [(12.0, "improved", 0), (20.1, "within noise", 0), (30.0, "regressed", 1)]
)
def test_the_exit_code_tells_a_regression(
    tmp_path: Path, after_ms: float, outcome: str, code: int, printed: Callable[..., str]
) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=after_ms)
    assert f" {outcome.upper()} " in printed("compare", before, after, code=code)


def test_what_cannot_be_compared_does_not_pass_a_gate(tmp_path: Path, printed: Callable[..., str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", steady=3)
    assert "3 steady steps" in " ".join(printed("compare", before, after, code=2).split())


def test_every_outcome_has_an_exit_code() -> None:
    assert EXIT_CODES == {"improved": 0, "within noise": 0, "regressed": 1, "not comparable": 2}


def test_files_and_folders_name_the_same_run(tmp_path: Path, printed: Callable[..., str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=12.0)
    by_file = json.loads(printed("compare", before / "report.json", after / "report.json", "--json"))
    by_folder = json.loads(printed("compare", before, after, "--json"))
    assert by_file["training"] == by_folder["training"]
    assert by_file["outcome"] == "improved"
    assert by_file["before"] == str(before / "report.json")


def test_the_loggers_folder_stands_for_the_run_in_it(tmp_path: Path, printed: Callable[..., str]) -> None:
    save_run(tmp_path / "version_0/gpuprof")
    after = save_run(tmp_path / "b", period_ms=12.0)
    assert " IMPROVED " in printed("compare", after.parent / "version_0", after)


@pytest.mark.parametrize("content", ["{}", "nonsense", '{"schema_version": 99}'])
def test_a_bad_report_is_an_error(tmp_path: Path, content: str, refused: Callable[..., str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    assert refused("compare", save_run(tmp_path / "a"), bad).startswith(f"gpuprof: {bad} ")


def test_an_empty_folder_is_an_error_with_the_way_out(tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "neither a journal" in refused("compare", tmp_path, tmp_path)


@pytest.mark.parametrize(("allow", "code"), [("", 2), ("hardware", 0), ("model,batch", 2)])
def test_other_hardware_needs_permission(tmp_path: Path, allow: str, code: int, printed: Callable[..., str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=12.0)
    for run, name in ((before, "GPU"), (after, "Another GPU")):
        report = json.loads((run / "report.json").read_text())
        report["run"]["device.name"] = name
        (run / "report.json").write_text(json.dumps(report))
    shown = " ".join(printed("compare", before, after, *(["--allow", allow] if allow else []), code=code).split())
    assert "-> Another GPU" in shown
    advised = f"--allow {allow and f'{allow},'}hardware"
    assert (advised in shown) == (code == 2)


def test_files_for_ci_and_people_are_written_beside_the_text(tmp_path: Path, printed: Callable[..., str]) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=30.0)
    junit, page = tmp_path / "gpuprof.xml", tmp_path / "compare.html"
    assert " REGRESSED " in printed("compare", before, after, "--junit", junit, "--html", page, code=1)
    root = ElementTree.fromstring(junit.read_bytes())
    assert int(root.attrib["failures"]) >= 1
    assert ">Regressed.</strong>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("json_options", [(), ("--json",)])
def test_where_files_were_written_is_said_beside_the_output(
    tmp_path: Path, json_options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b")
    junit, page = tmp_path / "gpuprof.xml", tmp_path / "compare.html"
    assert main(["compare", str(before), str(after), "--junit", str(junit), "--html", str(page), *json_options]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [f"JUnit: {junit}", f"HTML: {page}"]
    assert str(page) not in captured.out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--threshold", "80%"), 0),
        (("--threshold", "0.03"), 1),
        (("--metric", "wall"), 1),
        (("--metric", "memory.process_rss"), 0),
        (("--metric", "phase.forward,step_time"), 1),
        (("--metric", "phase.forward"), 2),
    ],
)
def test_threshold_and_metric_decide_the_exit_code(
    tmp_path: Path, options: tuple[str, ...], code: int, printed: Callable[..., str]
) -> None:
    before, after = save_run(tmp_path / "a"), save_run(tmp_path / "b", period_ms=30.0)
    assert json.loads(printed("compare", before, after, *options, "--json", code=code))["outcome"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--threshold", "five"), "--threshold must be a share from 0% to below 100%, as 5% or 0.05, got 'five'"),
        (("--threshold", "5"), "--threshold must be a share"),
        (("--metric", "speed"), "--metric must be one of throughput, wall, step_time"),
        (("--allow", "everything"), "--allow must be one of hardware, model, batch, got 'everything'"),
        (("--junit", "/nowhere/at/all.xml"), "cannot write /nowhere/at/all.xml"),
    ],
)
def test_wrong_options_are_errors_with_the_way_out(
    tmp_path: Path, options: tuple[str, str], words: str, refused: Callable[..., str]
) -> None:
    run = str(save_run(tmp_path / "a"))
    assert words in refused("compare", run, run, *options)


def test_a_wrong_option_is_an_error_before_any_run_is_read(refused: Callable[..., str]) -> None:
    assert "--threshold must be a share" in refused("compare", "nowhere", "nowhere", "--threshold", "five")


@pytest.mark.parametrize(
    ("text", "ratio"), [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), ("0%", 0.0), ("12.5%", 0.125)]
)
def test_a_share_is_a_percentage_or_a_fraction(text: str, ratio: float) -> None:
    assert parse_share(text) == pytest.approx(ratio)


@pytest.mark.parametrize("text", ["-1%", "100%", "nan", "inf", "", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_share(text)


def test_how_to_write_a_value_with_a_dash_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "a", "b", "--threshold", "-5%"])
    assert "if it begins with a dash, write --threshold=VALUE" in capsys.readouterr().err
