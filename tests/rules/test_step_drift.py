import pytest
from findings_builder import fired
from metrics_builder import HEALTHY_MS, build, replace
from uneven_builder import of_fifths, of_speed_levels, stretch

from lightning_gpuprof.model.evenness import Evenness
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.steps.phase_change import PhaseChange
from lightning_gpuprof.rules.steps.step_drift import StepDrift

RULE = StepDrift()
GROWING = (0.0, 10.0, 20.0, 30.0, 40.0)


def test_a_list_that_grows_is_found_with_its_phase_and_slope() -> None:
    finding = fired(RULE, of_fifths("forward", GROWING, slope=0.13))
    assert finding.severity == "critical"
    assert (finding.subject, finding.explains) == ("forward", claims.FORWARD)
    assert "over 380 steps, 130 ms per 1,000 steps. 100 % of it is in forward" in finding.summary
    # the line of the fifths, 10 ms every 76 steps, at batch 0, half a fifth before the middle of the first
    assert finding.gain.saved_ms_per_step == pytest.approx(20 + 10 * 37.5 / 76)
    assert finding.gain.saved_lower_ms_per_step == pytest.approx(20 * (0.99 * 90 - 1.01 * 50) / 40)


@pytest.mark.parametrize(
    ("levels", "slope"),
    [((0.0, 16.0, 26.0, 34.0, 40.0), None), (GROWING, 0.11)],
    ids=["it slows down", "a part of it comes in jumps"],
)
def test_growth_off_a_line_is_counted_from_the_first_fifth_on(levels: tuple[float, ...], slope: float | None) -> None:
    finding = fired(RULE, of_fifths("forward", levels, slope=slope))
    assert finding.gain.saved_ms_per_step == pytest.approx(sum(levels) / 5)


def test_a_step_began_with_what_the_other_phases_take_at_least() -> None:
    growing = of_fifths("logging", (0.0, 40.0, 80.0, 120.0, 160.0))  # its line is at -19.5 ms in the first batch
    assert fired(RULE, growing).gain.saved_ms_per_step == pytest.approx(80 + HEALTHY_MS["logging"])


def test_what_drifts_is_not_told_as_a_change_again() -> None:
    assert PhaseChange().check(of_fifths("forward", GROWING)) is None


@pytest.mark.parametrize(
    "levels",
    [(0.0, 0.5, 1.0, 29.0, 30.0), (0.0, 0.5, 15.0, 29.5, 30.0), (0.0, 10.0, 24.0, 30.0, 49.0)],
    ids=["one jump", "one in the middle of a fifth", "two jumps"],
)
def test_what_grows_in_jumps_does_not_drift(levels: tuple[float, ...]) -> None:
    assert RULE.check(of_fifths("forward", levels)) is not None
    assert RULE.check(of_fifths("forward", levels, slope=0.03)) is None  # 11 ms of them within the levels


def test_what_grows_in_jumps_is_a_change() -> None:
    of = of_fifths("forward", (0.0, 0.5, 15.0, 29.5, 30.0), slope=0.0)
    speed_levels = (stretch(count=190), stretch({"forward": 30.0}, start=190, count=190))
    found = fired(PhaseChange(), replace(of, evenness=Evenness(speed_levels=speed_levels, drift=of.evenness.drift)))
    assert found.subject == "forward"


def test_a_run_that_gets_faster_has_no_fault() -> None:
    assert RULE.check(of_fifths("forward", GROWING[::-1], slope=-0.1)) is None


@pytest.mark.parametrize(("last_ms", "fires"), [(6.0, False), (6.3, True)])
def test_a_tenth_between_the_near_ends_decides(last_ms: float, fires: bool) -> None:
    levels = [last_ms * part for part in (0, 0.5, 0.7, 0.9, 1)]
    assert (RULE.check(of_fifths("forward", levels)) is not None) is fires


def test_a_machine_that_fills_up_is_no_drift_of_the_program() -> None:
    assert RULE.check(of_fifths("forward", GROWING, run_delay_ratio=0.3)) is None


def test_too_few_steps_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="100 are needed"):
        RULE.check(of_speed_levels(stretch()))
    with pytest.raises(MissingSignal, match="steady steps"):
        RULE.check(build(steady=3))
