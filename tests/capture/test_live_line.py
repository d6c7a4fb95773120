"""The line about the steps that go on: what it says, how often, and by whose hand."""

from lightning_gpuprof.capture.live_line import ABOVE_BAR_EVERY_S, MAX_RECENT_STEPS, LiveLine, live_text
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.model.journal import PROFILED, Sample, Slot
from lightning_gpuprof.model.phases import PHASES, Phase

MS = 1_000_000
S = 1_000 * MS
SLOTS = [Slot(id=number, action=phase, phase=phase) for number, phase in enumerate(PHASES)]


def step(batch: int, start_ns: int = 0, flags: int = 0, **phases_ms: int) -> ClosedStep:
    charged = [phases_ms.get(phase, 0) * MS for phase in PHASES]
    return ClosedStep(batch, start_ns, start_ns + sum(charged), batch, 0, flags, charged, None, -1)


def text(*steps: ClosedStep, samples: int | None = 32, later_ns: int = 0) -> str:
    return live_text(steps, SLOTS, samples, now_ns=(steps[-1].end_ns if steps else 0) + later_ns)


class Line:
    def __init__(self) -> None:
        self.shown: list[str] = []
        self.cleared = 0

    def show(self, text: str) -> None:
        self.shown.append(text)

    def clear(self) -> None:
        self.cleared += 1


def test_the_line_says_step_period_throughput_largest_phase_and_wait() -> None:
    said = text(step(6, backward=60, data_wait=40), step(7, 100 * MS, backward=60, data_wait=40))
    assert said == "gpuprof: step 7 | 100 ms | 320 samples/s | largest: backward 60% | waiting for data 40%"


def test_where_the_wait_is_the_largest_phase_the_next_one_is_told_of() -> None:
    said = text(step(7, backward=20, data_wait=70, forward=10))
    assert said.endswith("| largest: waiting for data 70% | backward 20%")


def test_what_is_not_known_is_left_out() -> None:
    assert "samples/s" not in text(step(7, forward=10), samples=None)
    assert text() == ""
    assert text(step(7, flags=PROFILED, forward=10)) == "gpuprof: step 7 (traced)"
    assert text(step(0)) == "gpuprof: step 0 | 0 ms"


def test_traced_steps_do_not_count() -> None:
    said = text(step(7, forward=10), step(8, 10 * MS, flags=PROFILED, forward=90))
    assert said.startswith("gpuprof: step 8 (traced) | 10 ms |")


def test_only_the_last_ten_seconds_count() -> None:
    said = text(step(0, forward=100), step(1, 20 * S, forward=50))
    assert "| 50 ms |" in said


def test_a_step_that_takes_long_is_told_of_while_it_goes_on() -> None:
    one = step(7, forward=100)
    assert "none since" not in text(one, later_ns=S)
    assert text(one, later_ns=14 * S).startswith("gpuprof: step 7, none since 14 s | 100 ms")
    slow: dict[Phase, int] = {"forward": 10_000}
    assert "none since" not in text(step(7, **slow), later_ns=14 * S)


def test_it_is_written_twice_a_second_at_most_and_goes_with_the_last_step() -> None:
    line = Line()
    live = LiveLine(line, None, SLOTS, None, now=lambda: 0)
    assert live.sample(0) == ()
    assert line.shown == []
    live.watch([step(number, forward=1) for number in range(3 * MAX_RECENT_STEPS)])
    for t_ns in (S, S + S // 10, S + S // 2, S + S // 2 + 1):
        live.sample(t_ns)
    assert len(line.shown) == 2
    live.end()
    live.sample(3 * S)
    assert (len(line.shown), line.cleared) == (2, 1)
    live.close()


def test_the_gpu_of_the_rank_is_in_the_line_as_long_as_it_answers() -> None:
    def reading(subject: str, t_ns: int, **values: float | None) -> Sample:
        return Sample(source="nvml", subject=subject, t_ns=t_ns, values=values)

    line = Line()
    live = LiveLine(line, None, SLOTS, None, now=lambda: 0)
    live.watch([step(1, forward=1)])
    live.take(reading("gpu0", S, utilization_ratio=0.834, memory_used_bytes=20e9))
    live.take(reading("gpu1", S, utilization_ratio=0.1, memory_used_bytes=1e9))
    live.take(reading("gpu0", S, xid=31.0))
    live.sample(2 * S)
    assert line.shown[-1].endswith("| gpu0: 83% utilization, 18.6 GiB used")
    live.sample(62 * S)
    assert "gpu0" not in line.shown[-1]
    live.take(reading("gpu0", 63 * S, utilization_ratio=None, memory_used_bytes=20e9))  # a MIG device
    live.sample(64 * S)
    assert line.shown[-1].endswith("| gpu0: 18.6 GiB used")


def test_above_a_bar_it_comes_limited_and_nothing_is_written_over() -> None:
    line, above = Line(), list[str]()
    live = LiveLine(line, above.append, SLOTS, None, now=lambda: 0)
    live.watch([step(1, forward=1)])
    for second in range(int(2 * ABOVE_BAR_EVERY_S)):
        live.sample(second * S)
    live.end()
    live.sample(100 * S)
    live.close()
    assert (len(above), line.shown, line.cleared) == (2, [], 0)
