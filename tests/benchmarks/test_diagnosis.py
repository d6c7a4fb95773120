import json
from pathlib import Path

import diagnosis
import pytest


def test_the_program_prints_a_table_and_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "diagnosis.json"
    assert diagnosis.main(["--steps", "2000", "--slots", "3", "--rounds", "2", "--json", str(target)]) == 0
    assert "ask all rules" in capsys.readouterr().out
    found = json.loads(target.read_text())
    parts = {part["what"]: part["wall_s"]["median"] for part in found["parts"]}
    assert set(parts) == {*diagnosis.PARTS, "all"}
    assert parts["all"] >= max(parts[what] for what in diagnosis.PARTS)
    assert found["verdict"] != "not-enough-data"
