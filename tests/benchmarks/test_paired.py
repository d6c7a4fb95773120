import json
from pathlib import Path

import numpy as np
import paired


def test_the_interval_holds_the_median_and_narrows_with_more_rounds() -> None:
    rng = np.random.default_rng(0)
    few = paired.bootstrap(rng.normal(10, 5, size=8).tolist(), rng)
    many = paired.bootstrap(rng.normal(10, 5, size=200).tolist(), rng)
    assert few.low <= few.median <= few.high
    assert many.high - many.low < few.high - few.low
    assert many.low < 10 < many.high


def test_a_multiple_is_of_medians_of_the_same_rounds() -> None:
    rng = np.random.default_rng(0)
    unit = [10.0, 20.0, 30.0, 40.0]
    assert paired.multiple([8 * value for value in unit], unit, rng) == paired.Multiple(median=8, low=8, high=8)


def test_a_multiple_of_nothing_is_none_and_a_dash() -> None:
    rng = np.random.default_rng(0)
    nothing = paired.multiple([100.0, 110.0, 120.0], [-1.0, -2.0, -3.0], rng)
    assert nothing == paired.Multiple(median=None, low=None, high=None)
    assert paired.times(nothing) == "-"


def test_a_multiple_of_what_may_be_nothing_has_no_upper_bound() -> None:
    rng = np.random.default_rng(0)
    unsure = paired.multiple([100.0] * 5, [10.0, -5.0, 12.0, 8.0, -1.0], rng)
    assert unsure.median == 100 / 8
    assert unsure.high is None
    assert unsure.low is not None
    assert unsure.low < 100 / 8
    assert paired.times(unsure).endswith("to ∞)")


def test_results_name_what_they_depend_on_and_not_the_machine(tmp_path: Path) -> None:
    target = tmp_path / "new" / "results.json"
    paired.write_json(target, "something", settings={"rounds": 3}, results=[])
    document = json.loads(target.read_text())
    assert list(document) == ["benchmark", "machine", "settings", "results"]
    assert set(document["machine"]) == {"cpus", "gpu", "system", "python", "torch", "lightning"}
    assert str(Path.home()) not in target.read_text()
