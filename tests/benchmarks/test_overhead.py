import json
from collections.abc import Sequence
from pathlib import Path

import overhead
import pytest
from instruments import VARIANTS, csv_logger, gpus_were_sampled, with_baselines
from paired import Interval, Multiple
from rich.console import Console
from separate_process import why_not, with_nvml
from toy_run import WARMUP_STEPS, Run, train_once

STEPS = WARMUP_STEPS + 20


def pairs(plain: Sequence[float], added: float, added_mean: float) -> list[overhead.Pair]:
    return [
        overhead.Pair(
            run=Run(median_us=each + added, mean_us=each + added_mean, quiet_us=each + added / 2),
            plain=Run(median_us=each, mean_us=each, quiet_us=each),
        )
        for each in plain
    ]


def test_a_variant_is_held_against_the_plain_run_of_its_own_round() -> None:
    drifting = [400.0, 500.0, 900.0, 450.0]  # the machine's speed; the variant adds 20 in every round
    plain, empty = overhead.summarise({"none": pairs(drifting, 0, 0), "empty": pairs(drifting, 20, 30)}, seed=0)
    assert (plain.added_us.low, plain.added_us.high) == (0, 0)
    assert empty.added_us == Interval(median=20, low=20, high=20)
    assert empty.added_mean_us == Interval(median=30, low=30, high=30)
    assert empty.added_quiet_us == Interval(median=10, low=10, high=10)
    assert empty.ratio.median > 1
    assert empty.times_ours is None  # ours was not measured


def test_what_a_variant_adds_is_a_multiple_of_what_ours_adds() -> None:
    ours, other = overhead.summarise(
        {"gpuprof": pairs([400.0, 500.0], 10, 20), "simple": pairs([430.0, 410.0], 40, 10)}, seed=0
    )
    assert ours.times_ours == Multiple(median=1, low=1, high=1)
    assert other.times_ours == Multiple(median=4, low=4, high=4)
    assert other.times_ours_mean == Multiple(median=0.5, low=0.5, high=0.5)


def test_every_variant_is_measured_together_with_what_it_is_held_against() -> None:
    assert with_baselines(["device-stats", "empty"]) == ("none", "empty", "csv-logger", "device-stats")
    for variant in VARIANTS.values():
        assert VARIANTS[variant.baseline].place in ("here", variant.place)
        assert VARIANTS[variant.baseline].baseline in (variant.baseline, "none")


@pytest.mark.slow
def test_results_are_written_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "overhead.json"
    asked = ["--variants", "empty", "device-stats", "--rounds", "1", "--steps", str(STEPS), "--json", str(target)]
    assert overhead.main(asked) == 0
    document = json.loads(target.read_text())
    results = {result["variant"]: result for result in document["results"]}
    assert list(results) == ["none", "empty", "csv-logger", "device-stats"]
    assert all(result["step_us"] > 0 for result in results.values())
    for of_monitor, of_logger in zip(results["device-stats"]["rounds"], results["csv-logger"]["rounds"], strict=True):
        assert of_monitor["plain"] == of_logger["run"]
    printed = capsys.readouterr().out
    assert "an empty callback" in printed
    assert "DeviceStatsMonitor" in printed


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("fake-nvml")), reason="no C compiler")
def test_all_samplers_run_in_a_process_that_finds_a_scripted_gpu() -> None:
    plain, everything = with_nvml(["none", "gpuprof-all"], steps=1000, accelerator="cpu")
    assert plain.median_us > 0
    assert everything.median_us > 0


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not("fake-nvml")), reason="no C compiler")
def test_a_failing_process_is_an_error_that_shows_its_last_words() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'nobody'"):
        with_nvml(["nobody"], steps=STEPS, accelerator="cpu")


def test_a_run_without_samples_of_a_gpu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_text('{"k":"sample","source":"host"}\n')
    with pytest.raises(RuntimeError, match="nvml"):
        gpus_were_sampled(tmp_path)
    (tmp_path / "rank0.jsonl").write_text('{"k":"sample","source":"host"}\n{"k":"sample","source":"nvml"}\n')
    gpus_were_sampled(tmp_path)


def test_what_a_variant_is_checked_for_is_checked_after_its_run() -> None:
    seen: list[bool] = []
    variant = overhead.VARIANTS["csv-logger"]
    checked = type(variant)(label="", make=csv_logger, check=lambda folder: seen.append(folder.is_dir()))
    assert train_once(checked, steps=STEPS, accelerator="cpu").median_us > 0
    assert seen == [True]


def test_optional_variants_are_not_measured_unless_asked_for() -> None:
    default = overhead.chosen(None, [], Console(quiet=True))
    assert {"advanced", "device-stats", "pytorch"} <= set(default)
    assert "traceml" not in default
    more = overhead.chosen(None, ["device-stats-1"], Console(quiet=True))
    assert set(more) - set(default) == {"csv-logger-1", "device-stats-1"}
