import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks/rank_hang.py"


@pytest.mark.slow
def test_jobs_run_until_they_are_ended_and_none_is_called_hanging_so_soon(tmp_path: Path) -> None:
    target = tmp_path / "rank_hang.json"
    words = [sys.executable, str(PROGRAM), "--hangs", "1", "--ordinary", "1", "--minutes", "0.1", "--json", str(target)]
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=240)
    document = json.loads(target.read_text())
    assert [one["named_s"] for one in document["hangs"]] == [None]
    assert document["wrong"] == []
    assert document["ordinary"]["hours"] > 0
