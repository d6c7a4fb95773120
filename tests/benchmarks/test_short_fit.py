import json
from pathlib import Path

import pytest
import short_fit


@pytest.mark.slow
def test_every_variant_is_held_against_the_fit_without_us(tmp_path: Path) -> None:
    target = tmp_path / "short_fit.json"
    arguments = ["--rounds", "1", "--processes", "1", "--fits", "0", "--loggers", "no logger", "--json", str(target)]
    assert short_fit.main(arguments) == 0
    written = json.loads(target.read_text())
    results = written["results"]
    assert [result["variant"] for result in results] == list(short_fit.VARIANTS)
    assert results[0]["added_s"]["median"] == 0
    assert all(result["fit_s"] > 0 for result in results)
    plain, ours = written["first"]
    assert 0 < plain["cpu_s"] < ours["cpu_s"]  # imports


def test_many_fits_leave_no_trainer_no_child_and_no_open_file() -> None:
    plain = short_fit.many(short_fit.NONE, 1)
    left = short_fit.many(short_fit.DEFAULT, 3)
    assert left.trainers == 0
    assert (left.children, left.threads, left.files) == (plain.children, plain.threads, plain.files)
