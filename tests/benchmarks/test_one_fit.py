import json
from pathlib import Path

import one_fit


def test_every_mode_gets_as_many_turns_and_the_trainer_is_left_whole(tmp_path: Path) -> None:
    target = tmp_path / "one_fit.json"
    assert one_fit.main(["--steps", "720", "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert [result["mode"] for result in document["results"]] == ["none", "empty", "gpuprof"] * 2
    assert [result["other_callbacks"] for result in document["results"]] == [0, 0, 0, 3, 3, 3]
    assert document["settings"]["turns"] == 3
    assert all(result["step_us"] > 0 for result in document["results"])
    assert document["results"][0]["added_us"]["median"] == 0
