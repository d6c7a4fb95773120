from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def overhead() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_overhead", ROOT / "benchmarks" / "overhead.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_variant_is_held_against_the_plain_run_of_its_own_round(overhead: ModuleType) -> None:
    drifting = [400.0, 500.0, 900.0, 450.0]  # the machine's speed; the variant adds 20 in every round
    runs = {
        "none": [overhead.Run(median_us=t, mean_us=t) for t in drifting],
        "empty": [overhead.Run(median_us=t + 20, mean_us=t + 30) for t in drifting],
    }
    plain, empty = overhead.summarise(runs, seed=0)
    assert (plain.added_us.low, plain.added_us.high) == (0, 0)
    assert empty.added_us == overhead.Interval(median=20, low=20, high=20)
    assert empty.added_mean_us == overhead.Interval(median=30, low=30, high=30)
    assert empty.ratio.median > 1


def test_the_interval_holds_the_median_and_narrows_with_more_rounds(overhead: ModuleType) -> None:
    rng = np.random.default_rng(0)
    few = overhead.bootstrap(rng.normal(10, 5, size=8).tolist(), rng)
    many = overhead.bootstrap(rng.normal(10, 5, size=200).tolist(), rng)
    assert few.low <= few.median <= few.high
    assert many.high - many.low < few.high - few.low
    assert many.low < 10 < many.high


def test_results_are_written_without_names_of_the_machine(
    overhead: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "overhead.json"
    steps = str(overhead.WARMUP_STEPS + 20)
    assert overhead.main(["--variants", "empty", "--rounds", "2", "--steps", steps, "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert [result["variant"] for result in document["results"]] == ["none", "empty"]
    assert all(result["step_us"] > 0 for result in document["results"])
    assert set(document["machine"]) == {"cpus", "gpu", "system", "python", "torch", "lightning"}
    assert str(Path.home()) not in target.read_text()
    assert "an empty callback" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--steps", "100"], ["--variants", "other"]])
def test_impossible_arguments_are_refused(overhead: ModuleType, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        overhead.main(arguments)
    assert refused.value.code == 2
