import json
from pathlib import Path

import pytest
import rank_truth


def test_planted_ranks_are_named_and_healthy_jobs_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "rank_truth.json"
    for only in ("8 ms in h2d", "healthy, 2 ranks", "rank 6 of 8: 600 ms", "rank 5 of 8"):
        assert rank_truth.main(["--only", only, "--json", str(target)]) == 0
        document = json.loads(target.read_text())
        assert sum(counts["of"] for counts in document["summary"].values()) > 0
        assert all(counts["right"] == counts["of"] for counts in document["summary"].values())
    assert "Wrong" not in capsys.readouterr().out


def test_there_are_enough_cases_of_each_kind() -> None:
    cases = rank_truth.cases()
    assert len(cases) >= 40
    assert len({case.name for case in cases}) == len(cases)
    assert sum(not case.late and not case.rules for case in cases) >= 10
