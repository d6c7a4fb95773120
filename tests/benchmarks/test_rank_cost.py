import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks/rank_cost.py"


@pytest.mark.slow
def test_both_ranks_fit_with_every_variant_and_their_steps_are_held_against_those_without_one(tmp_path: Path) -> None:
    target = tmp_path / "rank_cost.json"
    words = [sys.executable, str(PROGRAM), "--rounds", "3", "--steps", "60", "--json", str(target)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True, timeout=240).stdout
    written = msgspec.json.decode(target.read_bytes())
    ranks = written["ranks"]
    assert len(ranks) == 2
    for found in ranks:
        assert {"nothing", "empty callback", "GpuProfiler()"} <= set(found)
        assert found["nothing"]["beyond_nothing_median"]["median"] == 0
        assert found["empty callback"]["beyond_empty_mean"]["median"] == 0
        assert all(one["median_step"]["median"] > 0 for one in found.values())
    assert [len(rounds) for rounds in written["rounds"]] == [3, 3]
    assert "What a step of DDP costs" in printed
