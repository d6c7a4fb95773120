"""The truth matrix counts right; a few of its cases are run for real."""

import dataclasses
import functools
import json
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import truth
from fake_nvml.builder import compiler
from python_process import run_python
from traceml_verdicts import conclusion
from truths.case import Case
from truths.cases import CASES
from truths.cures import CURES, NoCureError, advised
from truths.fits import Fit
from truths.judging import judge, summarise
from truths.recorded import TRACES
from truths.running import Job, JudgedFinding, RunOutcome, in_own_process, run_all

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.rules.discovery import discover

RULES = {"callback-slow", "input-bound", "single-process-loading"}


def finding(rule: str, severity: str = "warning", advice: str = "") -> JudgedFinding:
    return JudgedFinding(rule=rule, severity=severity, subject="", advice=advice, saved_ms=5.0)


def told(*findings: JudgedFinding, verdict: str = "loop-bound", run_delay_ratio: float | None = None) -> RunOutcome:
    return RunOutcome(
        verdict=verdict,
        verdict_words="",
        findings=findings,
        leads="",
        reliability="ok",
        not_evaluated={},
        period_ms=10.0,
        period_mean_ms=10.0,
        steady_steps=100,
        phases_ms={},
        run_ms_per_step=11.0,
        cpu_busy_ratio=None,
        run_delay_ratio=run_delay_ratio,
    )


def nothing(folder: Path, seed: int) -> Path:
    return folder


def test_no_finding_promises_more_than_its_fault_costs_or_far_less_without_saying_what_it_leaves() -> None:
    cases = json.loads((truth.RESULTS / "truth_removed.json").read_text(encoding="utf-8"))["cases"]
    promised = [(one["case"], one["ratio"], run) for one in cases if one["ratio"] is not None for run in one["runs"]]
    assert len(promised) >= 60
    assert [case for case, ratio, _ in promised if ratio > 1.1] == []
    assert [case for case, ratio, run in promised if ratio < 0.8 and not run.get("leaves")] == []


def test_beside_other_programs_the_first_screen_is_about_the_same_in_all_runs_and_never_called_reliable() -> None:
    result = json.loads((truth.RESULTS / "truth_load.json").read_text(encoding="utf-8"))
    assert [one["firsts"] for one in result["results"] if len(one["firsts"]) > 1] == []
    assert {one["reliability"] for one in result["runs"]} == {"conditional"}


def test_there_are_enough_cases_of_every_kind() -> None:
    fits = [case for case in CASES if isinstance(case.source, Fit)]
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(len(case.expected) for case in CASES) >= 40
    assert sum(case.group == "fault" for case in fits) >= 40
    assert sum(case.group == "healthy" for case in fits) >= 10
    assert {case.source.kind for case in fits if isinstance(case.source, Fit)} == {
        "mlp",
        "conv",
        "transformer",
        "recurrent",
    }
    assert all(case.cure in CURES for case in CASES if case.cure)


NO_CASE = {
    "barebones-gap": "Lightning's loop takes 0.15 ms of a step with one layer, and a finding has to gain 0.2 ms",
    "compile-absent": "it says beside launch-bound, and only there, that nothing is compiled; allowed in its cases",
}
if not TRACES.is_dir():
    NO_CASE["ddp-bucket-size"] = "its case is a recorded trace, and ../shared is absent"


@pytest.mark.skipif(compiler() is None, reason="cases of drivers are built from C")
def test_each_rule_has_a_case_that_expects_it_or_a_reason_why_not() -> None:
    expected = {rule for case in CASES for names in case.expected for rule in names}
    assert {rule.id for rule in discover(entry_points=()).rules} - expected == set(NO_CASE)


def test_the_symptom_of_a_finding_takes_no_place_and_raises_no_alarm() -> None:
    case = Case(name="pair", source=nothing, group="pair", expected=(("single-process-loading",), ("callback-slow",)))
    said = told(finding("single-process-loading"), finding("input-bound"), finding("callback-slow"))
    judgement = judge(case, said, rules=RULES)
    assert (judgement.ranks, judgement.false_alarms) == ((1, 2), ())


def test_a_fault_without_a_rule_waits_and_is_not_missed() -> None:
    case = Case(name="later", source=nothing, expected=(("not-written",),))
    summary = summarise([judge(case, told(), rules=RULES)])
    assert summary.waiting == ["later"]
    assert summary.first.of == 0


def test_a_warning_that_nothing_planted_explains_is_a_false_alarm() -> None:
    case = Case(name="healthy", source=nothing, group="healthy", verdicts=("compute-bound",))
    said = told(finding("callback-slow"), finding("input-bound", severity="info"))
    judgement = judge(case, said, rules=RULES)
    summary = summarise([judgement])
    assert judgement.false_alarms == ("callback-slow",)
    assert (summary.healthy.right, summary.healthy.of) == (0, 1)
    assert summary.verdicts.missed == ["healthy (loop-bound)"]


@pytest.mark.parametrize(("run_delay_ratio", "right"), [(None, False), (0.1, False), (0.5, True)])
def test_a_healthy_run_may_be_bound_by_others_who_took_its_cpus(run_delay_ratio: float | None, right: bool) -> None:
    case = Case(name="healthy", source=nothing, group="healthy", verdicts=("compute-bound",))
    said = told(finding("cpu-contention"), verdict="host-bound", run_delay_ratio=run_delay_ratio)
    judgement = judge(case, said, rules=RULES)
    assert judgement.verdict_right is right
    assert bool(judgement.false_alarms) is not right


def test_in_a_healthy_run_a_rule_that_has_to_judge_is_silent() -> None:
    case = Case(name="quiet", source=nothing, group="healthy", must_judge=("queue-full",))
    said = told(finding("queue-full", severity="info"), finding("callback-slow", severity="info"))
    assert judge(case, said, rules=RULES).false_alarms == ("queue-full",)
    decoy = dataclasses.replace(case, group="decoy")
    assert judge(decoy, said, rules=RULES).false_alarms == ()


def test_the_silence_of_a_rule_that_could_not_judge_proves_nothing() -> None:
    case = Case(name="quiet", source=nothing, group="healthy", must_judge=("low-clocks",))
    blind = dataclasses.replace(told(), not_evaluated={"low-clocks": "no clock was sampled"})
    assert summarise([judge(case, told(), rules=RULES)]).healthy.right == 1
    summary = summarise([judge(case, blind, rules=RULES)])
    assert summary.healthy.right == 0
    assert summary.healthy.missed == ["quiet (low-clocks could not judge)"]


def test_what_is_applied_is_the_change_of_the_finding() -> None:
    change = Change(call="DataLoader", arguments={"num_workers": 3}, before={"num_workers": 0})
    said = told(dataclasses.replace(finding("single-process-loading"), change=change))
    assert advised(CURES["workers"], said).change == change
    with pytest.raises(NoCureError, match="advises nothing to apply"):
        advised(CURES["workers"], told(finding("single-process-loading", advice="Use workers.")))
    with pytest.raises(NoCureError, match="among the findings"):
        advised(CURES["callback"], said)


def test_the_conclusion_of_traceml_is_its_primary_diagnosis() -> None:
    summary = {"primary_diagnosis": {"status": "COMPUTE-BOUND", "summary": "Compute-bound.", "action": "Reduce it."}}
    assert conclusion(summary).words == "Compute-bound. Reduce it."


def dies(folder: Path) -> None:
    raise SystemExit(3)


def fails(folder: Path) -> None:
    raise ValueError("no such luck")


def tells(folder: Path) -> str:
    return folder.name[:6]


def test_a_job_that_fails_or_dies_stops_no_other() -> None:
    jobs = [Job(name="dies", do=dies), Job(name="fails", do=fails), Job(name="tells", do=tells)]
    done = {one.name: one for one in run_all(jobs)}
    assert done["dies"].error == "the process died"
    assert "no such luck" in done["fails"].error
    assert (done["tells"].told, done["tells"].error) == ("truth-", "")


def fails_inside(folder: Path) -> None:
    in_own_process(functools.partial(fails, folder))


def hangs_inside(folder: Path) -> None:
    def hang() -> None:
        (folder.parent / "pid").write_text(str(os.getpid()))
        time.sleep(600)

    in_own_process(hang)


def test_a_run_in_a_process_of_its_own_fails_with_its_job_and_ends_with_it(tmp_path: Path) -> None:
    jobs = [Job(name="fails", do=fails_inside), Job(name="hangs", do=hangs_inside, limit_s=5.0)]
    done = {one.name: one for one in run_all(jobs, keep=tmp_path)}
    assert "no such luck" in done["fails"].error
    assert done["hangs"].error == "not done after 5 s"
    pid = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.05)  # the kernel ends it a moment after it is told to


def test_a_name_that_no_case_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        truth.main(["--only", "no such case"])
    assert "--only no such case names no case" in capsys.readouterr().err


def run(*arguments: str, target: Path) -> list[dict[str, Any]]:
    """The program in a process of its own: it forks, which one that has trained must not do."""
    run_python(truth.__file__, *arguments, "--json", target)
    runs: list[dict[str, Any]] = json.loads(target.read_text())["runs"]
    return runs


@pytest.mark.slow
def test_one_dose_in_a_real_fit_is_recovered(tmp_path: Path) -> None:
    (response,) = run("--dose", "--only", "callback 20 ms", target=tmp_path / "doses.json")
    assert response["recovered_ms"] >= 0.75 * response["dose_ms"]  # on a machine that others use it is longer


@pytest.mark.slow
def test_what_was_planted_is_the_first_finding(tmp_path: Path) -> None:
    (one,) = run("--only", "callback sleeps 20 ms after each batch", target=tmp_path / "truth.json")
    assert one["ranks"] == [1], one
    assert one["false_alarms"] == []


@pytest.mark.slow
def test_healthy_fits_have_no_warning(tmp_path: Path) -> None:
    assert len(run("--only", "transformer, 4 batches", "MLP as Lightning comes", target=tmp_path / "truth.json")) == 2


@pytest.mark.slow
def test_the_advice_for_a_callback_brings_what_it_promises(tmp_path: Path) -> None:
    (effect,) = run("--advice", "--only", "callback sleeps 20 ms after each batch", target=tmp_path / "advice.json")
    assert effect["bound_ms"] >= 10
    assert effect["achieved_ms"] is not None
    assert not effect["still"]
