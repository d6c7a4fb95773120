"""Comparisons that the tab makes: from the step times of small journals, once, else from the reports, which is said."""

from pathlib import Path

import log_directories
import pytest

from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.tensorboard_plugin import comparisons
from lightning_gpuprof.tensorboard_plugin.comparisons import Comparisons
from lightning_gpuprof.tensorboard_plugin.reports import Made, Reports
from lightning_gpuprof.tensorboard_plugin.run_files import RunFiles, look

Pair = tuple[tuple[Made, RunFiles], tuple[Made, RunFiles]]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two runs of the same journal."""
    lines = log_directories.journal_lines(tmp_path, 1)
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.jsonl").write_bytes(b"".join(lines))
        files = look(tmp_path / name, tmp_path)
        made = Reports().of(files, 60)
        assert isinstance(made, Made)
        found.append((made, files))
    return found[0], found[1]


def shown(held: Comparison, pair: Pair) -> str:
    return comparisons.render(
        "overview", lambda report: "", pair[0][0].report, pair[1][0].report, (held.before, held.after), held
    )


def test_the_intervals_are_from_the_journals_where_these_are_small(pair: Pair) -> None:
    held = Comparisons().of(("a", "b"), *pair)
    assert held.sources == ("journal", "journal")
    assert comparisons.FROM_REPORTS not in shown(held, pair)


def test_the_intervals_are_from_the_reports_where_a_journal_is_large_and_the_view_says_so(pair: Pair) -> None:
    held = Comparisons(most_journal_bytes=100).of(("a", "b"), *pair)
    assert held.sources is not None
    assert "journal" not in held.sources
    assert comparisons.FROM_REPORTS in shown(held, pair)


def test_a_journal_that_is_ahead_of_the_report_is_not_taken(pair: Pair) -> None:
    older = Made(report=pair[0][0].report, version="older")
    held = Comparisons().of(("a", "b"), (older, pair[0][1]), pair[1])
    assert held.sources[0] != "journal"
    assert held.sources[1] == "journal"


def test_a_comparison_is_made_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Comparisons()
    held = kept.of(("a", "b"), *pair)
    monkeypatch.delattr(comparisons, "compare")
    assert kept.of(("a", "b"), *pair) is held


def test_the_tab_compares_by_the_journals(pair: Pair) -> None:
    tab = log_directories.Tab(pair[0][1].folder.parent)
    html = tab.get("compare", run="a", other="b", view="overview").json["html"]
    assert "block bootstrap over the steady steps of the journal" in html
