import msgspec
import pytest
from empty_structs import empty
from feeding_builder import starved
from findings_builder import fired
from metrics_builder import SHORT_MS, build, busy_machine, outliers, replace
from trusted import assert_agree
from uneven_builder import stretch

from lightning_gpuprof.model.evenness import Evenness
from lightning_gpuprof.model.host import HostUse, Level, MachineUse
from lightning_gpuprof.model.input_pipeline import InputLoader, InputPipeline, InputVerdictKind, InputWorker
from lightning_gpuprof.model.metrics import CallbackShare, Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose
from lightning_gpuprof.rules.steps.step_outliers import StepOutliers
from lightning_gpuprof.rules.verdict import decide

RULE = StepOutliers()
PERIOD_MS = 5.2


def stalling(
    phases: dict[Phase, float] | Phase = "forward",
    *,
    count: int = 12,
    stall_ms: float = 400.0,
    every: int = 0,
    num_workers: int = 2,
) -> Metrics:
    stalls = outliers(count=count, stall_ms=stall_ms, phases=phases, steps=580, period_ms=PERIOD_MS, every=every)
    return build(
        times_ms=SHORT_MS,
        steps=600,
        stalls=stalls,
        num_workers=num_workers,
        callbacks_ms={("Saver", "on_train_batch_end"): 0.05},
    )


def test_twelve_stalls_in_eight_seconds_are_found_and_the_phase_is_named() -> None:
    finding = fired(RULE, stalling())
    assert (finding.severity, finding.subject) == ("critical", "forward")
    assert "12 of 580 steps stalled and took up to 405 ms" in finding.summary
    assert "4.80 s of 7.82 s (61 %): 100 % in forward" in finding.summary
    assert finding.gain.saved_ms_per_step == pytest.approx(4800 / 580)
    assert finding.gain.speedup_max == pytest.approx(7816 / (7816 - 4800))


def test_the_phases_that_hold_most_the_distance_and_the_callback_are_named() -> None:
    summary = fired(RULE, stalling({"backward": 0.5, "forward": 0.4, "loop": 0.1})).summary
    assert "50 % in backward and 40 % in forward" in summary
    assert "loop" not in summary
    assert "every 50 steps" in fired(RULE, stalling(every=50)).advice
    assert fired(RULE, stalling("callbacks")).subject == "Saver.on_train_batch_end"


def test_a_callback_of_lightning_that_stalls_is_told_by_its_argument() -> None:
    metrics = stalling("callbacks")
    (share,) = (c.share for c in metrics.callback_shares)
    own = CallbackShare(name="ModelCheckpoint{'monitor': 'loss'}", hook="on_train_batch_end", share=share)
    run = {**metrics.run, "trainer.checkpoint_every_n_train_steps": 5}
    finding = fired(RULE, replace(metrics, callback_shares=(own,), run=run))
    assert finding.advice.startswith("Save less often: ModelCheckpoint(..., every_n_train_steps=50).")


def test_stalls_of_the_loader_get_a_queue_that_hides_them_or_a_worker() -> None:
    assert "prefetch_factor=40" in fired(RULE, stalling("data_wait")).advice
    assert decide(stalling("data_wait")).kind == "input-bound"
    assert fired(RULE, stalling("data_wait", num_workers=0)).change is None, "a worker that reads two batches ahead"
    line = LineRow(place="data.py:36 read_shard", phase="data_wait", total_s=4.0, share=0.5, looks=40)
    loading = fired(RULE, replace(stalling("data_wait", num_workers=0), lines=(line,)))
    assert loading.advice.startswith("Find what read_shard() (data.py:36) does in batches")
    often = msgspec.structs.replace(line, total_s=0.2)
    loading = fired(RULE, replace(stalling("data_wait", num_workers=0), lines=(often,)))
    assert "read_shard" not in loading.advice, "ordinary steps take as much of it"
    assert "num_workers=1" in fired(RULE, stalling("data_wait", count=60, stall_ms=9.0, num_workers=0)).advice


def test_stalls_of_a_loader_that_every_step_waits_for_get_the_workers_that_its_wait_needs() -> None:
    metrics = build(
        times_ms={**SHORT_MS, "data_wait": 20.0},
        steps=600,
        stalls=outliers(count=12, stall_ms=400.0, phases="data_wait", steps=580, period_ms=25.0),
        num_workers=0,
        process_cpus=0.2,
        worker_cpus=None,
    )
    findings = diagnose(metrics).findings
    assert {"step-outliers", "single-process-loading"} <= {found.rule for found in findings}
    assert_agree(findings)


@pytest.mark.parametrize(("stall_ms", "fires"), [(12.0, False), (14.0, True)])
def test_a_twentieth_of_the_time_decides(stall_ms: float, fires: bool) -> None:
    assert (RULE.check(stalling(stall_ms=stall_ms)) is not None) is fires


def test_contradictory_numbers_raise_nothing_but_a_missing_signal() -> None:
    metrics = stalling()
    assert metrics.outliers is not None
    with pytest.raises(MissingSignal):
        RULE.check(replace(metrics, outliers=replace(metrics.outliers, total_ms=0.0)))
    finding = RULE.check(replace(metrics, outliers=replace(metrics.outliers, excess_by_phase_ms={})))
    assert finding is not None


def crowded(metrics: Metrics) -> Metrics:
    return replace(metrics, host=busy_machine(0.95))


def test_on_a_crowded_machine_only_stalls_outside_the_model_or_on_a_grid_are_the_run_s() -> None:
    finding = fired(RULE, crowded(stalling({"forward": 0.5, "backward": 0.5})))
    assert (finding.severity, finding.confidence) == ("info", 0.5)
    assert "fully used" in finding.summary
    assert finding.advice.startswith("First look for other processes")
    finding = fired(RULE, crowded(stalling({"forward": 0.5, "data_wait": 0.5})))
    assert (finding.severity, finding.subject) == ("critical", "waiting for data")
    assert finding.gain.saved_ms_per_step == pytest.approx(2400 / 580)
    finding = fired(RULE, crowded(stalling("forward", every=50)))
    assert finding.severity == "critical"
    assert "every 50 steps" in finding.advice


@pytest.mark.parametrize(
    ("verdict", "slowest_ms", "make_ms", "severity"),
    [
        ("compute", 5.0, 20.0, "info"),
        ("compute", 300.0, 20.0, "critical"),
        ("compute", 300.0, 11.5, "critical"),  # 12 ms a step are stalls, and handing batches over takes some of it
        ("compute", 300.0, 8.0, "info"),
        ("processing", 5.0, 8.0, "critical"),
    ],
)
def test_late_workers_that_make_batches_in_time_are_doubtful_on_a_machine_that_others_use(
    verdict: InputVerdictKind, slowest_ms: float, make_ms: float, severity: str
) -> None:
    stalls = outliers(count=12, stall_ms=400.0, phases="data_wait", steps=380, period_ms=50.0)
    metrics = build(stalls=stalls, host=busy_machine(0.95))
    worker = empty(InputWorker, batches=200, measured=200, item_max_ms=slowest_ms)
    loader = InputLoader(
        loader=0, workers=2, make_ms=make_ms, items_ms=make_ms, collate_ms=0.0, deliver_ms=make_ms / 2, idle_ratio=0.9
    )
    found = InputPipeline(
        verdict=verdict,
        summary="",
        step_ms=50.0,
        wait_ms=0.8,
        waited_ratio=0.02,
        enough_workers=1,
        workers=(worker,),
        loaders=(loader,),
    )
    finding = fired(RULE, replace(metrics, input=found))
    assert finding.severity == severity
    assert ("not the queue longer" in finding.advice) is (verdict == "processing")


@pytest.mark.parametrize(
    ("num_workers", "wait_ms", "severity"), [(0, 0.2, "critical"), (0, 50.0, "info"), (2, 0.2, "info")]
)
def test_pauses_of_a_crowded_machine_would_not_all_lie_in_a_short_fetch_of_the_main_process(
    num_workers: int, wait_ms: float, severity: str
) -> None:
    """The few slow samples were not among those that were timed; workers can wait for a CPU all the time."""
    times_ms = {**SHORT_MS, "data_wait": wait_ms}
    period_ms = sum(times_ms.values())
    stalls = outliers(count=12, stall_ms=400.0, phases="data_wait", steps=380, period_ms=period_ms)
    metrics = build(times_ms=times_ms, stalls=stalls, num_workers=num_workers, host=busy_machine(0.95))
    loader = InputLoader(
        loader=0, workers=num_workers, make_ms=12.0, items_ms=None, collate_ms=None, deliver_ms=12.0, idle_ratio=None
    )
    found = empty(InputPipeline, verdict="compute", step_ms=period_ms, wait_ms=wait_ms, loaders=(loader,))
    assert fired(RULE, replace(metrics, input=found)).severity == severity


@pytest.mark.parametrize(("others_cpus", "severity"), [(0.9, "critical"), (1.0, "info")])
def test_a_quarter_of_the_cpus_used_by_others_is_a_crowd(others_cpus: float, severity: str) -> None:
    stalls = outliers(count=12, stall_ms=400.0, phases="forward", steps=380, period_ms=50.0)
    machine = MachineUse(cpu_others_cpus=Level(mean=others_cpus, max=others_cpus))
    assert fired(RULE, build(stalls=stalls, host=HostUse(machine=machine))).severity == severity


def test_batches_that_are_larger_by_nature_are_information_only() -> None:
    finding = fired(RULE, stalling({"forward": 0.4, "backward": 0.45, "optimizer": 0.05, "loop": 0.1}, stall_ms=80.0))
    assert finding.severity == "info"
    assert "larger batches" in finding.summary
    assert "samples in batches 37, 75, 113" in finding.advice
    assert finding.gain.saved_lower_ms_per_step == 0


@pytest.mark.parametrize(
    ("phases", "every"),
    [
        ({"forward": 0.4, "backward": 0.45, "loop": 0.15}, 50),
        ({"forward": 1.0}, 0),
        ({"data_wait": 0.5, "h2d": 0.5}, 0),
    ],
)
def test_stalls_of_one_place_or_at_a_fixed_distance_are_no_larger_batches(
    phases: dict[Phase, float], every: int
) -> None:
    assert fired(RULE, stalling(phases, every=every)).severity == "critical"


@pytest.mark.parametrize(
    ("idle_ratio", "severity", "lower_ms"),
    [(None, "info", 0.0), (0.02, "info", 0.02 * 7816 / 580), (0.15, "warning", 0.15 * 7816 / 580)],
)
def test_on_a_device_only_what_it_idles_counts(idle_ratio: float | None, severity: str, lower_ms: float) -> None:
    stalls = stalling().outliers
    finding = fired(RULE, build(times_ms=SHORT_MS, stalls=stalls, run={"device.type": "cuda"}, idle_ratio=idle_ratio))
    assert finding.severity == severity
    assert ("not known to be idle" in finding.summary) is (severity == "info")
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(lower_ms)


@pytest.mark.parametrize(
    ("slow_steps", "longer_ms", "fires"), [(12, 400.0, False), (9, 400.0, True), (60, 6.0, True), (0, 0.0, True)]
)
def test_steps_of_a_part_that_is_slow_as_a_whole_are_no_stalls(slow_steps: int, longer_ms: float, fires: bool) -> None:
    slow = stretch(start=400, count=slow_steps, period_ms=PERIOD_MS + longer_ms)
    parts = (stretch(count=400, period_ms=PERIOD_MS), slow) if slow_steps else ()
    metrics = replace(stalling(), evenness=Evenness(speed_levels=parts))
    assert (RULE.check(metrics) is not None) is fires
    words = decide(metrics).summary
    assert ("are a slow part of the run" in words) is not fires
    assert ("stalled and took up to" in words) is fires


@pytest.mark.parametrize(("rest_ms", "severity"), [(100.0, "info"), (500.0, "critical"), (None, "critical")])
def test_two_long_stalls_beside_small_ones_can_be_an_accident(rest_ms: float | None, severity: str) -> None:
    metrics = stalling()
    assert metrics.outliers is not None
    assert (
        fired(RULE, replace(metrics, outliers=replace(metrics.outliers, rest_excess_ms=rest_ms))).severity == severity
    )


@pytest.mark.parametrize(
    ("delayed_ratio", "others_cpus", "excess_s"),
    [(0.95, 1.5, None), (0.95, None, None), (0.95, 0.1, 4.8), (0.4, 1.5, 2.88), (None, 1.5, 4.8)],
)
def test_what_other_programs_take_of_a_stall_is_not_the_runs(
    delayed_ratio: float | None, others_cpus: float | None, excess_s: float | None
) -> None:
    """Nine tenths and more of all stalls beside two programs that compute; or it is the run's own workers."""
    metrics = stalling("callbacks")
    assert metrics.outliers is not None
    level = None if others_cpus is None else Level(mean=others_cpus, max=others_cpus)
    host = HostUse(machine=MachineUse(cpu_others_cpus=level))
    stalls = replace(metrics.outliers, delayed_ratio=delayed_ratio)
    finding = RULE.check(replace(metrics, outliers=stalls, host=host))
    assert (finding is None) is (excess_s is None)
    if finding is not None:
        assert f"The stalls cost {excess_s:.2f} s of 7.82 s" in finding.summary


def test_a_sleep_is_not_made_shorter_by_what_others_take_of_the_model_s_phases() -> None:
    """Of 7 s of stalls in a run of 10 s, a callback slept 2 s; it waits for no CPU then."""
    metrics = crowded(stalling({"forward": 0.35, "backward": 0.35, "callbacks": 0.3}))
    assert metrics.outliers is not None
    stalls = replace(metrics.outliers, delayed_ratio=0.7)
    level = Level(mean=1.5, max=1.5)
    host = HostUse(machine=MachineUse(cpu_others_cpus=level))
    validity = msgspec.structs.replace(metrics.validity, conditional=True)
    finding = fired(RULE, replace(metrics, outliers=stalls, host=host, validity=validity))
    assert finding.gain.saved_ms_per_step == pytest.approx(0.3 * stalls.excess_ms / stalls.checked, rel=0.1)
    assert "% in callbacks" in finding.summary


def test_beside_every_n_steps_only_batches_are_named_that_fit() -> None:
    metrics = stalling("callbacks")
    assert metrics.outliers is not None
    batches = (70, 40, 80, 100, 45, 75, 81, 90)  # the longest first; the later ones are pauses of the machine
    advice = fired(RULE, replace(metrics, outliers=replace(metrics.outliers, batches=batches))).advice
    assert "every 10 steps (in batches 40, 70, 80, 90, 100)" in advice


def test_stalls_that_may_be_a_crowd_s_are_silent_where_the_crowd_is_reported() -> None:
    metrics = crowded(stalling({"forward": 0.5, "backward": 0.5}))
    assert RULE.check(metrics) is not None
    validity = msgspec.structs.replace(metrics.validity, conditional=True)
    assert RULE.check(replace(metrics, validity=validity)) is None
    program = crowded(stalling({"forward": 0.5, "callbacks": 0.5}))
    assert RULE.check(replace(program, validity=validity)) is not None


@pytest.mark.parametrize(("phases", "counts"), [({"loop": 0.4, "forward": 0.6}, False), ("logging", True)])
def test_a_short_run_whose_stalls_may_be_pauses_is_not_judged_by_them(
    phases: dict[Phase, float] | Phase, counts: bool
) -> None:
    """Four stalls of 0.1 s beside 0.4 s of work: half of the time, which a busy machine takes by itself."""
    stalls = outliers(count=4, stall_ms=100.0, phases=phases, steps=70, period_ms=PERIOD_MS)
    verdict = decide(
        build(times_ms=SHORT_MS, steps=72, epochs=1, stalls=stalls, validation=(0, 0.0), checkpoint=(0, 0.0))
    )
    assert ("stalled" in verdict.summary) is counts
    assert (verdict.kind == "loop-bound") is counts


def test_slow_samples_that_make_steps_stall_get_one_queue_by_either_rule() -> None:
    stalls = outliers(count=36, stall_ms=140.0, phases="data_wait", steps=580, period_ms=10.0)
    knobs = {"items_ms": 15.0, "verdict": "compute", "samples_ms": (1.0, 200.0), "steps": 600}
    metrics = starved(burst=(0.47, 0.44), stalls=stalls, **knobs)
    found = {finding.rule: finding for finding in diagnose(metrics).findings}
    assert "prefetch_factor=12" in found["input-jitter"].advice
    assert "prefetch_factor=12" in found["step-outliers"].advice
    assert_agree(tuple(found.values()))

    lagging = starved(burst=(0.47, 0.44), stalls=stalls, worker_ms=34.0, run={"loader.in_order": True}, **knobs)
    found = {finding.rule: finding for finding in diagnose(lagging).findings}
    assert found["input-jitter"].change.arguments == {"in_order": False}
    assert found["step-outliers"].change is None, "one worker has the slow samples: no queue hides all of the stalls"
    assert "one worker needs 33.0 ms per batch on average" in found["step-outliers"].advice
    assert_agree(tuple(found.values()))
