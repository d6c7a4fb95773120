import json
from pathlib import Path

import accounting
import pytest

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_program_prints_a_table_and_writes_its_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "accounting.json"
    code = accounting.main(["--quick", "--scale", "1", "--only", "only clip", "two loaders", "--json", str(target)])
    printed = capsys.readouterr().out
    assert code == 0
    assert "only clip" in printed
    cases = json.loads(target.read_text())["cases"]
    assert [(case["case"], case["ok"]) for case in cases] == [("only clip", True), ("test alone, two loaders", True)]
    clip = {line["where"]: line["planted_s"] for line in cases[0]["lines"]}
    assert clip["phase clip"] == clip["part train"] >= 0.1


def test_a_word_that_no_case_has_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accounting.main(["--only", "nonsense", "--json", str(tmp_path / "x.json")]) == 2
    assert "nonsense" in capsys.readouterr().out
