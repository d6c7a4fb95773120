import json
from pathlib import Path

import pytest
import samplers
from paired import Interval
from separate_process import why_not
from toy_run import WARMUP_STEPS, Run


def run(us: float, background: float | None) -> Run:
    return Run(median_us=us, mean_us=us, quiet_us=us, background_cpu_ratio=background)


def test_sampling_is_held_against_the_run_without_it_in_the_same_process() -> None:
    pairs = [
        {samplers.OFF: run(us, 0.002), samplers.ON: run(us + 3, 0.006)} for us in (400.0, 900.0, 500.0)
    ]  # the machine's speed changes
    result = samplers.summarise(pairs, seed=0)
    assert result.added_us == Interval(median=3, low=3, high=3)
    assert result.added_background_ratio.median == pytest.approx(0.004)
    assert result.background_ratio.high == 0.006
    assert result.step_us == 500


def test_a_run_without_a_background_time_is_not_taken_for_one_that_costs_nothing() -> None:
    with pytest.raises(ValueError, match="no CPU time"):
        samplers.summarise([{samplers.OFF: run(1, None), samplers.ON: run(1, 0.1)}], seed=0)


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("fake-nvml")), reason=why_not("fake-nvml") or "-")
def test_results_are_written_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "samplers.json"
    # a second at least, or nothing is sampled
    assert samplers.main(["--rounds", "1", "--steps", str(WARMUP_STEPS + 1500), "--json", str(target)]) == 0
    document = json.loads(target.read_text())
    assert document["result"]["background_ratio"]["median"] > 0
    assert len(document["rounds"]) == 2
    assert "% of a core" in capsys.readouterr().out
