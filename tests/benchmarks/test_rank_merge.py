import json
from pathlib import Path

import pytest
import rank_merge


def test_both_commands_name_the_late_rank_from_journals_and_from_summaries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "rank_merge.json"
    assert rank_merge.main(["--ranks", "16", "--steps", "300", "--lengths", "300", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert len(document["looks"]) == 4
    assert all(one["is_right"] for one in document["looks"])
    assert document["lengths"][0]["summary_bytes"] < 30_000
    assert [(one["ranks"], one["is_right"]) for one in document["windows"]] == [(16, True)]
    assert "peak MB" in capsys.readouterr().out
