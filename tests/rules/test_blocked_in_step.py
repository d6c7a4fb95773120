import pytest
from findings_builder import fired
from metrics_builder import build, busy_machine, replace

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.steps.blocked_in_step import _SLEEPING, BlockedInStep

RULE = BlockedInStep()
SITE = "train.py:41 training_step"


def sleeping(
    blocked_ms: float = 10.0,
    *,
    phase: Phase = "forward",
    compute_ms: float = 3.0,
    process_cpus: float | None = 0.5,
    threads: Value = 2,
    samples: int = 40,
    device: Value = "cpu",
    ranks: int = 1,
    host_busy: float | None = None,
) -> Metrics:
    times: dict[Phase, float] = {"forward": 3.0, "backward": 3.0, "optimizer": 1.0, "zero_grad": 0.1}
    return build(
        times_ms={**times, phase: blocked_ms + compute_ms},
        blocked_ms={phase: blocked_ms},
        blocked_samples=samples,
        sites={phase: [(SITE, 55), ("train.py:12 forward", 2)]},
        process_cpus=process_cpus,
        worker_cpus=None,
        usable_cpus=4.0,
        run={"device.type": device, "torch.num_threads": threads, "trainer.world_size": ranks},
        host=busy_machine(host_busy),
    )


@pytest.mark.parametrize("phase", ["backward", "optimizer", "zero_grad", "h2d"])
def test_it_finds_each_phase_in_which_the_thread_works(phase: Phase) -> None:
    assert fired(RULE, sleeping(phase=phase)).explains == claims.of_phase(phase)


def test_waiting_for_companion_threads_is_told_apart_without_the_cpu_time_of_the_process() -> None:
    metrics = build(
        blocked_ms={"forward": 10.0}, process_cpus=None, run={"torch.num_threads": 2}, times_ms={"forward": 20.0}
    )
    with pytest.raises(MissingSignal, match="torch's threads"):
        RULE.check(metrics)
    # A thread that hardly computes has companions that hardly compute.
    finding = RULE.check(sleeping(process_cpus=None, compute_ms=0.2))
    assert finding is not None


def test_one_torch_thread_has_no_companions() -> None:
    assert fired(RULE, sleeping(process_cpus=None, threads=1)).gain.saved_lower_ms_per_step == pytest.approx(9.8)


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (sleeping(device="cuda"), "waiting for the device cannot be separated"),
        (sleeping(device=None), "device of the run is not known"),
        (sleeping(samples=19), "sampled in 19 of the 20 steps"),
        (build(steady=5), "steady steps"),
    ],
)
def test_what_was_not_measured_is_not_judged(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)


def test_a_tenth_of_the_step_decides() -> None:
    found = [RULE.check(sleeping(ms, threads=1)) is not None for ms in (0.5, 1.2, 1.6, 3.0)]
    assert found == [False, False, True, True]


def test_a_full_machine_weakens_it_only_where_waiting_for_a_cpu_was_not_measured() -> None:
    unknown = sleeping(host_busy=0.99)
    weak = fired(RULE, unknown)
    assert (weak.severity, weak.confidence) == ("info", 0.5)
    measured = replace(unknown, cpu=replace(unknown.cpu, run_delay_ratio=0.3))
    sure = fired(RULE, measured)
    assert sure.severity == "critical"
    assert sure.confidence > 0.5


def test_of_a_sleep_it_is_said_first_that_it_sleeps() -> None:
    code = "time.sleep(self.ms / 1e3)"
    line = LineRow(place=SITE, phase="forward", total_s=1.0, share=0.5, looks=9, code=code)
    finding = fired(RULE, replace(build(**_SLEEPING), lines=(line,)))
    assert finding.summary.startswith("The main thread sleeps in forward for 10.0 ms of each 21.0 ms step")
    assert finding.advice.startswith("Remove the sleep in training_step() (train.py:41). If it waits for something")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("weights = torch.load(path)", "Read the data before training"),
        ("frame.to_csv(path)", "Write from a background thread"),
        ("answer = requests.get(url)", "Send and receive from"),
        ("self.lock.acquire()", "Collect its result"),
        ("self.helper()", "Read files before training or in the Dataset; write them from"),
        ("", "Read files before training or in the Dataset; write them from"),
    ],
)
def test_the_advice_is_about_what_the_line_does(code: str, remedy: str) -> None:
    line = LineRow(place=SITE, phase="forward", total_s=1.0, share=0.5, looks=9, code=code)
    finding = fired(RULE, replace(build(**_SLEEPING), lines=(line,)))
    assert finding.advice.startswith("Move the blocking call in training_step() (train.py:41) out of forward. ")
    assert remedy in finding.advice
