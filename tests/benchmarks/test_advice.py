"""What changes brought against what was expected of them and what a trial said: from rows to the page of the docs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import advice
import msgspec
import pytest
from truths.running import Job, JobResult, complete, in_turn
from truths.settings import Found, Measured

import measured
from lightning_gpuprof.model.finding import Expected

ANY_LOAD = "--others", "inf"
EXPECTED = Expected(whole_ms=20.0, step_ms=10.0, lower_ms=9.0, upper_ms=11.0)


def tried(name: str, *, after_ms: float, outcome: str, expected: Expected | None = None) -> Measured:
    return Measured(
        name=name,
        no_gain=expected is None,
        before_ms=20.0,
        after_ms=after_ms,
        unsure=0.004,
        expected=expected,
        base_ms=21.0,
        tried_ms=10.0,
        lower_ms=9.0,
        upper_ms=11.0,
        outcome=outcome,
    )


def test_the_page_has_what_was_measured_once_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    assert measured.tried() == ""
    rows = [
        advice.row_of(tried("workers", after_ms=10.5, outcome="faster", expected=EXPECTED)),
        advice.row_of(tried("nothing", after_ms=20.0, outcome="no gain")),
    ]
    found = Found(
        name="slow items", chosen="num_workers=2", chosen_ms=10.2, best="num_workers=3", best_ms=10.0, unsure=0.01
    )
    advice.Results(changes=rows, searches=[found], left=3).write(tmp_path / "advice.json")
    page = measured.tried()
    assert "; 3 more cases are not measured yet." in page
    assert "is known to 0.4 % (standard error, median)" in page
    assert "| workers | 20.0 ms | 10.5 ms | 1.90x | 2.00x | 2.10x | faster |" in page
    assert "| slow items | `num_workers=2` | 10.20 ms | `num_workers=3` | 10.00 ms |" in page
    assert "| nothing | 20.0 ms | 20.0 ms | 1.00x | - | 2.10x | no gain |" in page
    assert "| expected, off by | 1 | 2.5 % | 2.5 % |" in page
    assert 'covers 100.0 % of these changes. Of 1 changes without effect, 100.0 % are called "no gain"' in page


def job_of(kind: str, number: int) -> Job:
    return Job(name=f"{kind} {number}", do=print, kind=kind)


def test_all_kinds_come_before_a_second_case_of_one() -> None:
    jobs = [job_of(kind, number) for kind, count in (("a", 4), ("b", 2), ("c", 1)) for number in range(count)]
    assert [job.name for job in in_turn(jobs)] == ["a 0", "b 0", "c 0", "a 1", "a 2", "b 1", "a 3"]


def test_what_is_cut_leaves_results_that_a_later_call_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third job is interrupted; a call without time leaves what is there."""
    target = tmp_path / "advice.json"
    ran: list[str] = []
    monkeypatch.setattr(advice, "chosen", lambda only, repetition: [job_of("a", number) for number in range(3)])

    def run_all(jobs: Sequence[Job], **_: object) -> Iterator[JobResult]:
        if len(ran) == 2:
            ran.append("cut")
            raise KeyboardInterrupt
        ran.append(jobs[0].name)
        told = tried(jobs[0].name, after_ms=10.0, outcome="faster") if len(ran) > 1 else None
        yield JobResult(name=jobs[0].name, seconds=1.0, told=told, error="Traceback\nValueError: planted")

    monkeypatch.setattr(advice, "run_all", run_all)
    with pytest.raises(KeyboardInterrupt):
        advice.main(["--json", str(target), *ANY_LOAD])
    assert advice.main(["--json", str(target), "--resume", "--minutes", "0"]) == 1, "one failed"
    kept = msgspec.json.decode(target.read_bytes(), type=advice.Results)
    assert (kept.done, kept.failed, kept.left) == (["a 0", "a 1"], {"a 0": "ValueError: planted"}, 1)
    advice.main(["--json", str(target), "--resume", *ANY_LOAD])
    assert ran == ["a 0", "a 1", "cut", "a 2"]


def test_what_other_programs_disturb_is_measured_again_some_times_and_then_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(advice, "chosen", lambda only, repetition: [job_of("a", number) for number in range(2)])
    monkeypatch.setattr(
        advice, "run_all", lambda jobs, **_: [ran.append(jobs[0].name), JobResult(name="a", seconds=1.0, told=None)][1:]
    )
    target = tmp_path / "advice.json"
    for again in ((), ("--resume",)):
        assert advice.main(["--json", str(target), "--others=-inf", *again]) == 0
    kept = msgspec.json.decode(target.read_bytes(), type=advice.Results)
    assert ran == ["a 0", "a 1"] * advice.MOST_TRIES
    assert (kept.done, kept.changes, kept.disturbed) == ([], [], dict.fromkeys(("a 0", "a 1"), advice.MOST_TRIES))


def test_rounds_without_a_step_of_each_run_are_left_out_unless_they_are_most() -> None:
    assert complete([[None, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, None]]) == [[2.0, 3.0], [6.0, 7.0]]
    with pytest.raises(RuntimeError, match="2 of 3 rounds of slices hold no whole step"):
        complete([[None, 2.0, 3.0], [5.0, None, 7.0]])


def test_results_of_another_profiler_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, target = tmp_path / "code", tmp_path / "advice.json"
    code.mkdir()
    (code / "rule.py").write_text("limit = 1")
    monkeypatch.setattr(advice, "SOURCES", (code,))
    advice.Results(done=["a"], source=advice.source_digest()).write(target)
    assert advice.earlier(target).done == ["a"]
    (code / "rule.py").write_text("limit = 2")
    before = target.read_bytes()
    assert advice.earlier(target) == advice.Results(source=advice.source_digest())
    [aside] = tmp_path.glob("advice-*.json")
    assert aside.read_bytes() == before, "nothing that took an hour is lost"


def test_a_job_begins_if_any_time_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "time", SimpleNamespace(monotonic=iter([0.0, 0.0, 59.0, 61.0]).__next__))
    monkeypatch.setattr(advice, "chosen", lambda only, repetition: [job_of("a", number) for number in range(3)])
    monkeypatch.setattr(
        advice,
        "run_all",
        lambda jobs, **_: [
            JobResult(name=jobs[0].name, seconds=59.0, told=tried(jobs[0].name, after_ms=10.0, outcome="faster"))
        ],
    )
    assert advice.main(["--json", str(tmp_path / "advice.json"), "--minutes", "1", *ANY_LOAD]) == 0
    kept = msgspec.json.decode((tmp_path / "advice.json").read_bytes(), type=advice.Results)
    assert (kept.done, kept.left) == (["a 0", "a 1"], 1)
    assert kept.minutes == pytest.approx(118 / 60)
