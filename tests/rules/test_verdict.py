import pytest
from device_builder import collective, distributed
from metrics_builder import SHORT_MS, build, busy_machine, outliers, replace, scaled, share
from ranks_builder import with_ranks

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.numbers import millis
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.host_causes import HOST_RATIO
from lightning_gpuprof.rules.verdict import decide


def stalling(phase: Phase) -> Metrics:
    """Twelve stalls of 0.4 s in eight seconds."""
    return build(
        times_ms=SHORT_MS,
        steps=600,
        stalls=outliers(count=12, stall_ms=400, phases=phase, steps=580, period_ms=5.2),
        validation=(0, 0.0),
        checkpoint=(0, 0.0),
    )


CASES: dict[str, tuple[Metrics, str]] = {
    "healthy": (build(), "compute-bound"),
    "too few steps": (build(steady=9), "not-enough-data"),
    "no step": (build(steps=0, epochs=1), "not-enough-data"),
    # Cases with a known truth on which another profiler is wrong
    "2 ms an item, no workers": (
        build(times_ms={**SHORT_MS, "data_wait": 64.0}, num_workers=0, worker_cpus=None, process_cpus=0.1),
        "input-bound",
    ),
    "20 ms sleep in another callback": (
        build(times_ms={**SHORT_MS, "callbacks": 20.1}, callbacks_ms={("Other", "on_train_batch_end"): 20.0}),
        "loop-bound",
    ),
    "validation 3.0 s of 3.3 s": (
        build(times_ms={phase: ms * 0.15 for phase, ms in SHORT_MS.items()}, validation=(4, 3.0), checkpoint=(0, 0.0)),
        "outside-steps",
    ),
    "12 stalls of 0.4 s in forward": (stalling("forward"), "host-bound"),
    "12 batches of many times the size": (
        build(
            times_ms=SHORT_MS,
            stalls=outliers(count=12, stall_ms=400, phases={"forward": 0.5, "backward": 0.5}, steps=580, period_ms=5.2),
        ),
        "compute-bound",
    ),
    "12 stalls of 0.4 s in the fetch": (stalling("data_wait"), "input-bound"),
    "12 stalls of 0.4 s in callbacks": (stalling("callbacks"), "loop-bound"),
    "stalls of the model on a crowded machine": (
        replace(stalling("backward"), host=busy_machine(0.97)),
        "compute-bound",
    ),
    "10 ms sleep in training_step": (
        build(
            times_ms={**SHORT_MS, "forward": 13.0},
            blocked_ms={"forward": 10.0},
            process_cpus=0.45,
            run={"torch.num_threads": 2},
        ),
        "host-bound",
    ),
    # The other branches
    "checkpoints and gaps": (build(checkpoint=(10, 12.0)), "outside-steps"),
    "rank synchronisation": (build(times_ms={"sync": 12.0}), "sync-bound"),
    "transfer": (build(times_ms={"h2d": 8.0}), "transfer-bound"),
    "a transfer that sleeps": (
        build(times_ms={"h2d": 18.0}, blocked_ms={"h2d": 17.5}, run={"torch.num_threads": 1}),
        "transfer-bound",
    ),
    "logging": (build(times_ms={"logging": 12.0}), "loop-bound"),
    "lightning's loop": (build(times_ms={"loop": 12.0}), "loop-bound"),
    "two causes of one size": (build(times_ms={"data_wait": 30.0, "callbacks": 28.0}), "mixed"),
    "a larger later cause": (build(times_ms={"data_wait": 35.0, "callbacks": 75.0}), "loop-bound"),
    "nothing stands out": (
        build(times_ms={"data_wait": 15.0, "h2d": 7.0, "loop": 5.5, "sync": 10.0, "forward": 8.0, "backward": 12.0}),
        "mixed",
    ),
    "companion threads at work": (
        build(blocked_ms={"forward": 10.0, "backward": 11.0}, process_cpus=1.0, run={"torch.num_threads": 2}),
        "compute-bound",
    ),
    "device without work": (build(run={"device.type": "cuda"}, idle_ratio=0.5), "host-bound"),
    "device at work": (build(run={"device.type": "cuda"}, idle_ratio=0.05), "compute-bound"),
    "device not seen": (build(run={"device.type": "cuda"}), "compute-bound"),
    "a wait while the device works": (
        build(times_ms={"data_wait": 30.0}, run={"device.type": "cuda"}, idle_ratio=0.02),
        "compute-bound",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_what_was_planted(case: str) -> None:
    metrics, kind = CASES[case]
    verdict = decide(metrics)
    assert verdict.kind == kind, verdict.summary
    assert any(c.isdigit() for c in verdict.summary)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("factor", [1.5, 10.0, 100.0])
def test_a_run_in_which_all_takes_longer_has_the_same_verdict(case: str, factor: float) -> None:
    metrics, kind = CASES[case]
    assert decide(scaled(metrics, factor)).kind == kind


@pytest.mark.parametrize(
    ("phase", "below_ms", "above_ms", "kind"),
    [
        ("data_wait", 12.0, 13.0, "input-bound"),
        ("sync", 8.9, 9.4, "sync-bound"),
        ("h2d", 5.5, 5.9, "transfer-bound"),
        ("logging", 4.0, 4.5, "loop-bound"),
    ],
)
def test_each_threshold_is_held_by_the_lower_bound(phase: Phase, below_ms: float, above_ms: float, kind: str) -> None:
    assert decide(build(times_ms={phase: below_ms})).kind == "compute-bound"
    assert decide(build(times_ms={phase: above_ms})).kind == kind


def test_validation_just_above_a_quarter_of_the_run_is_outside() -> None:
    assert decide(build(validation=(4, 6.0), checkpoint=(0, 0.0))).kind == "compute-bound"
    assert decide(build(validation=(4, 7.0), checkpoint=(0, 0.0))).kind == "outside-steps"


def test_a_cost_of_microseconds_bounds_nothing() -> None:
    tiny: dict[Phase, float] = dict.fromkeys(SHORT_MS, 0.1)
    verdict = decide(build(times_ms={**tiny, "data_wait": 0.19, "forward": 0.9}))
    assert verdict.kind != "input-bound"


def test_the_runner_up_is_the_next_cause_with_its_share() -> None:
    verdict = decide(build(times_ms={"data_wait": 60.0}, validation=(0, 0.0), checkpoint=(0, 0.0)))
    assert (verdict.kind, verdict.runner_up) == ("input-bound", "compute-bound 42 %")
    healthy = decide(build(validation=(0, 0.0), checkpoint=(0, 0.0)))
    assert healthy.runner_up == "loop-bound 5.2 %"


def test_mixed_names_both_causes() -> None:
    verdict = decide(CASES["two causes of one size"][0])
    assert "input-bound" in verdict.summary
    assert "loop-bound" in verdict.summary
    assert verdict.runner_up.startswith("outside-steps")


def test_no_runner_up_is_above_the_verdict() -> None:
    verdict = decide(build(times_ms={"data_wait": 15.0}, validation=(0, 0.0), checkpoint=(0, 0.0)))
    assert verdict.kind == "input-bound"
    assert "(23 %)" in verdict.summary
    assert verdict.runner_up == "loop-bound 4.0 %"


def test_the_sentence_names_the_numbers_and_the_callback() -> None:
    summary = decide(CASES["20 ms sleep in another callback"][0]).summary
    assert "Other.on_train_batch_end" in summary
    assert "20.1 ms" in summary


def test_on_a_cpu_compute_is_said_to_be_the_hosts_work() -> None:
    assert "whether the host" not in decide(build()).summary


def waiting_for_ranks(**ranks: float) -> Metrics:
    """One of two ranks, whose backward computes for 8 ms and waits for 21."""
    run: dict[str, Value] = {"trainer.world_size": 2}
    one = build(times_ms={"backward": 29.0}, blocked_ms={"backward": 21.0}, process_cpus=0.5, run=run)
    return with_ranks(one, **ranks) if ranks else one


def test_time_in_backward_for_a_late_rank_is_no_work_of_the_model() -> None:
    verdict = decide(waiting_for_ranks(excess_ms=20.0, late=1))
    assert verdict.kind == "comm-bound"
    assert "21.0 ms" in verdict.summary
    assert "for rank 1 (host node0), which" in verdict.summary


@pytest.mark.parametrize(
    ("metrics", "kind"),
    [
        (build(times_ms={"sync": 22.0}, run={"trainer.world_size": 2}), "sync-bound"),
        (distributed([collective(12.0)]), "comm-bound"),
    ],
)
def test_the_late_rank_is_named_wherever_the_others_wait_for_it(metrics: Metrics, kind: str) -> None:
    verdict = decide(with_ranks(metrics, excess_ms=20.0, late=1))
    assert verdict.kind == kind
    assert "waits for rank 1 (host node0), which takes longer (forward)" in verdict.summary
    assert "rank 1" not in decide(with_ranks(metrics, excess_ms=1.0, late=1)).summary


def test_of_stalls_the_rank_that_all_wait_for_is_named() -> None:
    stalls = replace(stalling("sync"), run={**stalling("sync").run, "trainer.world_size": 2})
    assert (
        "because of rank 1 (host node0), which takes longer then (callbacks)"
        in decide(with_ranks(stalls, excess_ms=0.0, rare_ms=2000.0)).summary
    )
    assert "rank 1" not in decide(with_ranks(stalls, excess_ms=0.0, rare_ms=10.0)).summary


def test_where_no_rank_is_known_to_be_late_it_waits_for_other_ranks() -> None:
    for metrics in (waiting_for_ranks(), waiting_for_ranks(excess_ms=0.5)):
        verdict = decide(metrics)
        assert verdict.kind == "comm-bound"
        assert "for other ranks" in verdict.summary


def test_one_rank_that_waits_in_backward_waits_for_no_other() -> None:
    alone = build(times_ms={"backward": 29.0}, blocked_ms={"backward": 21.0}, process_cpus=0.5)
    assert decide(alone).kind == "host-bound"


def test_on_a_device_that_was_not_traced_it_says_what_is_not_known() -> None:
    assert "was not measured" in decide(CASES["device not seen"][0]).summary


@pytest.mark.parametrize("phase", ["callbacks", "h2d", "sync"])
def test_waits_of_the_host_bound_nothing_where_no_device_was_seen(phase: Phase) -> None:
    times_ms: dict[Phase, float] = {**SHORT_MS, phase: 40.0}
    verdict = decide(build(times_ms=times_ms, run={"device.type": "cuda"}, blocked_known=False))
    assert verdict.kind == "mixed", verdict.summary
    assert verdict.summary.endswith("whether the device was busy at the same time was not measured.")
    assert decide(build(times_ms={**SHORT_MS, "data_wait": 40.0}, run={"device.type": "cuda"})).kind == "input-bound"


def test_idle_time_outside_the_steps_does_not_hide_a_larger_cause_within() -> None:
    verdict = decide(build(times_ms={"data_wait": 400.0}, validation=(4, 70.0)))
    assert verdict.kind == "input-bound"
    assert verdict.runner_up.startswith("outside-steps")


def test_a_callback_every_few_steps_bounds_the_loop_although_no_median_shows_it() -> None:
    metrics = build()
    share = replace(metrics.shares["callbacks"], total_ratio=0.3)
    verdict = decide(replace(metrics, shares={**metrics.shares, "callbacks": share}))
    assert verdict.kind == "loop-bound"
    assert "callbacks (15 ms)" in verdict.summary or "callbacks (15.0 ms)" in verdict.summary


def test_time_in_the_loop_that_may_be_waiting_for_a_cpu_is_no_work_of_the_loop() -> None:
    """As recorded of an MLP beside programs that take the CPUs: half of the time it has none, mostly in the loop."""
    metrics = build()
    period_ms = metrics.step_ms
    loop = replace(metrics.shares["loop"], total_ratio=0.25)
    cpu = replace(metrics.cpu, run_delay=share(0.5 * period_ms, period_ms), run_delay_ratio=0.5)
    waits = replace(metrics, shares={**metrics.shares, "loop": loop})
    assert decide(waits).kind == "loop-bound"
    assert decide(replace(waits, cpu=cpu)).kind == "compute-bound"


def without_a_cpu(run_delay_ratio: float | None) -> Metrics:
    """Every phase takes its ordinary time in a median, and the period is five times their sum."""
    metrics = build(times_ms={phase: ms * 5 for phase, ms in SHORT_MS.items()}, usable_cpus=1.0)
    shares = {
        phase: replace(s, median_ratio=s.median_ratio / 5, lower_ratio=s.lower_ratio / 5, median_ms=s.median_ms / 5)
        for phase, s in metrics.shares.items()
    }
    return replace(metrics, shares=shares, cpu=replace(metrics.cpu, run_delay_ratio=run_delay_ratio))


def test_a_thread_without_a_cpu_is_said_to_have_none() -> None:
    verdict = decide(without_a_cpu(0.8))
    assert verdict.kind == "host-bound"
    assert verdict.summary == (
        "CPU-starved: in every 26.0 ms step the main thread waits 20.8 ms (80 %) for a free CPU; this run has "
        "too few CPUs."
    )
    assert decide(without_a_cpu(0.1)).kind == "mixed"


@pytest.mark.parametrize(("ratio", "kind"), [(0.1, "compute-bound"), (0.4, "host-bound"), (0.9, "host-bound")])
def test_work_that_waits_for_a_cpu_is_no_work(ratio: float, kind: str) -> None:
    metrics = build(usable_cpus=1.0)
    period_ms = metrics.step_ms
    crowded = replace(metrics, cpu=replace(metrics.cpu, run_delay=share(ratio * period_ms, period_ms)))
    verdict = decide(crowded)
    assert verdict.kind == kind
    assert verdict.summary.startswith("CPU-starved: in every ") is (kind == "host-bound")
    lower_ms = share(ratio * period_ms, period_ms).lower_ratio * period_ms
    assert (f"the main thread waits at least {millis(lower_ms)} (" in verdict.summary) is (kind == "host-bound")
    on_a_device = replace(crowded, run={**crowded.run, "device.type": "cuda"})
    assert decide(on_a_device).kind != "host-bound"  # the device may have had work meanwhile


@pytest.mark.parametrize("ratio", [0.1, 0.4, 0.8])
def test_other_programs_that_have_the_cpus_change_no_verdict(ratio: float) -> None:
    """A run of 1.3 CPUs on 4: it waits only because others have them."""
    metrics = build()
    period_ms = metrics.step_ms
    cpu = replace(metrics.cpu, run_delay=share(ratio * period_ms, period_ms), run_delay_ratio=ratio)
    verdict = decide(replace(metrics, cpu=cpu))
    assert verdict.kind == decide(metrics).kind == "compute-bound"
    assert ("other programs had the CPU for" in verdict.summary) is (ratio >= HOST_RATIO)
    assert ("computation and waiting for a CPU (" in verdict.summary) is (ratio >= HOST_RATIO)


def test_where_nothing_stands_out_because_others_have_the_cpus_the_verdict_says_so() -> None:
    waits = without_a_cpu(0.6)
    verdict = decide(replace(waits, cpu=replace(waits.cpu, usable_cpus=4.0)))
    assert verdict.kind == "mixed"
    assert verdict.summary.endswith(" of the run; other programs had the CPU for 60 % of the step.")
    assert "other programs" not in decide(without_a_cpu(0.1)).summary


def test_what_a_larger_cause_explains_is_not_put_down_to_the_cpus() -> None:
    metrics = build(times_ms={"callbacks": 60.0})
    assert decide(replace(metrics, cpu=replace(metrics.cpu, run_delay_ratio=0.4))).kind == "loop-bound"
