"""Real fits held against each other: the same script, a planted sleep, a cure; and a baseline at the end of a run."""

import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from planted_runs import Computing, Sleepy, fit
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.comparison import Comparison

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEP_S, ITEM_S, PLANTED_S = 0.05, 0.04, 0.5
"""What a training step and its one item sleep, and what the slower run's step sleeps more: beside other programs two
steps in forty take 0.7 s, which is half of the mean of a run with steps of 0.1 s."""
WIDTH = 3000
"""Of the model: its work is some hundredths of the slower run's step, so that no fix promises all of that."""
GENEROUS = "80%"
"""Two fits beside whatever else the machine does."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    trained(folder / "first")
    trained(folder / "again")
    trained(folder / "slower", step_s=STEP_S + PLANTED_S, baseline=folder / "first")
    trained(folder / "mended", item_s=0.0)
    return folder


def trained(folder: Path, *, step_s: float = STEP_S, item_s: float = ITEM_S, baseline: Path | None = None) -> None:
    profiler = GpuProfiler(
        dirpath=str(folder),
        windows=[20],
        nvml=False,
        reports=["json", "html"],
        baseline=None if baseline is None else str(baseline),
    )
    loader = DataLoader(Sleepy(40, item_s), batch_size=1)
    fit(folder, Computing({"training_step": step_s}, WIDTH), loader, profiler=profiler)


def compared(root: Path, after: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Comparison]:
    code = main(["compare", str(root / "first"), str(root / after), "--threshold", GENEROUS, "--json", *options])
    return code, msgspec.json.decode(capsys.readouterr().out, type=Comparison)


def test_two_runs_of_the_same_script_are_not_called_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = compared(root, "again", capsys)
    if found.outcome == "not comparable":  # beside bursts of other work, some thirty steps are worth too few
        assert any(words in found.training.why for words in ("fast or slow for", "too noisy"))
    assert (code, found.outcome) in ((0, "within noise"), (2, "not comparable")), found.summary
    assert found.sources == ("journal", "journal")
    assert not {row.outcome for row in found.phases} & {"improved", "regressed"}
    assert [change.name for change in found.conditions] == []


def test_a_planted_sleep_is_a_regression_of_its_phase(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junit = root / "slower.xml"
    code, found = compared(root, "slower", capsys, "--junit", str(junit))
    assert (code, found.outcome) == (1, "regressed"), found.summary
    assert ": forward +" in found.cause
    forward = next(row for row in found.phases if row.name == "forward")
    assert forward.outcome == "regressed"
    assert forward.difference is not None
    assert forward.difference >= 0.9 * PLANTED_S * 1e3
    failed = {
        case.attrib["name"] for case in ElementTree.parse(junit).iter("testcase") if case.find("failure") is not None
    }
    assert failed >= {"throughput", "wall", "step_time", "phase.forward"}
    assert not failed & {"phase.backward", "phase.optimizer", "phase.loop"}


def test_a_cure_improves_its_phase_and_has_what_it_gained_beside_its_bound(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = compared(root, "mended", capsys, "--metric", "phase.data_wait", "--threshold", "15%")
    assert (code, found.outcome) == (0, "improved"), found.summary
    gone = {finding.rule: finding for finding in found.findings if finding.state == "gone"}
    loading = gone["single-process-loading"]
    assert loading.saved_ms_per_step is not None
    assert loading.achieved_ms_per_step is not None
    assert loading.achieved_in == "data_wait"
    assert loading.achieved_ms_per_step >= 0.5 * 1e3 * ITEM_S
    assert found.windows.operators


def test_a_baseline_leaves_the_comparison_beside_the_report(root: Path) -> None:
    found = json.loads((root / "slower" / "comparison.json").read_text())
    assert found["outcome"] == "regressed"
    assert found["after"] == "this run"
    assert found["sources"] == ["journal", "journal"]
    page = (root / "slower" / "comparison.html").read_text(encoding="utf-8")
    assert "Regressed" in page
    assert "x slower" in page
    assert not (root / "first" / "comparison.json").exists()
