import pytest
from device_builder import collective, distributed
from example_runs import example_run
from findings_builder import fired
from metrics_builder import build, replace
from ranks_builder import job, on_device, with_ranks
from recorded_traces import recorded_trace
from trace_metrics import recorded_window

from lightning_gpuprof.analyze.trace_metrics import trace_metrics
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.phases import OutsidePart
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import measured
from lightning_gpuprof.rules.cause import late_ranks
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.ranks.accumulate_nosync import AccumulateNosync
from lightning_gpuprof.rules.ranks.collective_times import collective_run
from lightning_gpuprof.rules.ranks.ddp_bucket_size import DdpBucketSize
from lightning_gpuprof.rules.ranks.exposed_comm import ExposedComm
from lightning_gpuprof.rules.ranks.load_imbalance import LoadImbalance
from lightning_gpuprof.rules.ranks.straggler_rank import StragglerRank
from lightning_gpuprof.sinks.fix import fix_of
from lightning_gpuprof.trace.analyses.communication.rank_window import rank_window
from lightning_gpuprof.trace.analyses.communication.ranks import compare_ranks


def test_a_wait_that_the_device_s_work_covers_costs_nothing() -> None:
    assert StragglerRank().check(on_device(job(12.0), 2.0)) is None


def test_on_a_device_the_gain_is_at_most_what_it_waits() -> None:
    finding = fired(StragglerRank(), on_device(job(12.0), 8.0))
    assert finding.severity == "warning"
    assert "takes 12.0 ms longer" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(9.0)
    assert finding.confidence == 0.8


def test_without_a_window_a_device_may_cover_it() -> None:
    assert fired(StragglerRank(), replace(on_device(job(12.0), 8.0), windows=())).confidence == 0.5


def test_a_wait_that_the_device_s_work_covers_costs_nothing_of_load_imbalance() -> None:
    ranks = job(0.0, slowest=0.28, imbalance_ms=12.0)
    assert LoadImbalance().check(on_device(ranks, 2.0)) is None
    assert fired(LoadImbalance(), on_device(ranks, 8.0)).gain.saved_ms_per_step == pytest.approx(9.0)


def test_the_time_of_a_rank_that_is_late_itself_is_that_of_its_own_phase() -> None:
    metrics = job(16.0)
    late = measured(metrics.ranks).late
    finding = fired(StragglerRank(), replace(metrics, run={**metrics.run, "rank": late.ranks[0]}))
    assert finding.explains == claims.of_phase(late.phase)
    assert fired(StragglerRank(), metrics).explains == claims.COMMUNICATION


def test_a_straggler_is_told_by_its_own_rule_only() -> None:
    found = diagnose(job(16.0, imbalance_ms=12.0), (LoadImbalance(), StragglerRank())).findings
    assert [one.rule for one in found] == ["straggler-rank"]


@pytest.mark.parametrize(("min_ms", "lower_ms"), [(5.5, 11.0), (0.5, 1.0)])
def test_the_transfer_is_what_is_gained_at_least(min_ms: float, lower_ms: float) -> None:
    finding = fired(ExposedComm(), distributed([collective(6.0, min_ms=min_ms)]))
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(lower_ms)


def test_the_least_of_two_windows_decides() -> None:
    busy, calm = distributed([collective(6.0)]), distributed([collective(1.0)])
    assert ExposedComm().check(replace(busy, windows=(*busy.windows, *calm.windows))) is None


def test_it_carries_the_gain_before_the_general_rule_and_promises_none() -> None:
    metrics = example_run(**DdpBucketSize.examples[0].changes)
    specific, general = diagnose(metrics, (ExposedComm(), DdpBucketSize())).findings
    assert (specific.rule, general.rule, general.gain) == ("ddp-bucket-size", "exposed-comm", None)
    assert specific.gain.saved_lower_ms_per_step == 0


def test_one_rank_never_calls_less_transfer_than_all_ranks_show() -> None:
    """Of a recorded job."""
    numbers = [0, 2, 4, 5, 6, 7]  # 1 and 3 hold much work that was launched before the window
    names = [f"v100_dlrm_8rank_{number}.json.gz" for number in range(8)]
    truth = compare_ranks([rank_window(recorded_trace(name)) for name in names])
    of_job: dict[str, Value] = {"trainer.num_nodes": 1, "trainer.world_size": 8}
    for number in numbers:
        run = collective_run(trace_metrics(recorded_window(names[number]), of_job))
        rank = truth.ranks[number]
        assert run.windows[0].transfer_ratio >= rank.transfer_us / (rank.transfer_us + rank.waiting_us)
        assert run.windows[0].transfer_ratio < 0.5


@pytest.mark.parametrize("valid_here", [False, True])
def test_beside_other_programs_a_rank_that_is_late_now_and_then_is_information_only(valid_here: bool) -> None:
    metrics = with_ranks(build(), excess_ms=0.0, rare_ms=500.0)
    crowded = replace(metrics, validity=replace(metrics.validity, conditional=not valid_here))
    assert (fired(StragglerRank(), crowded).severity == "info") is not valid_here


def test_a_rank_does_not_wait_for_itself() -> None:
    metrics = with_ranks(build(), excess_ms=12.0)
    assert "rank 1" in late_ranks(metrics, 0.1)
    assert late_ranks(replace(metrics, run={**metrics.run, "rank": 1}), 0.1) == ""


@pytest.mark.parametrize(("part", "leads"), [("setup", False), ("validation", True)])
def test_a_late_rank_leads_validation_that_is_long_because_of_it(part: OutsidePart, leads: bool) -> None:
    """Late in setup, it explains nothing of it."""
    metrics = with_ranks(build(validation=(4, 16.0)), excess_ms=0.0, outside_s=12.0, outside=part)
    order = [finding.rule for finding in diagnose(metrics).findings]
    assert (order.index("straggler-rank") < order.index("validation-stall")) is leads


def test_the_last_backward_of_manual_accumulation_still_reduces() -> None:
    """Applied as it stood before, the change let the weights of the ranks drift apart."""
    example = AccumulateNosync.examples[0]
    finding = fired(AccumulateNosync(), example_run(**example.changes))
    assert finding.change.add[0] == "is_last = (batch_idx + 1) % 4 == 0"
    assert "nullcontext() if is_last else" in finding.change.add[1]
    assert "drift apart" in fix_of(finding, {}).effect
