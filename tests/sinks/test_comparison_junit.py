"""JUnit XML of a comparison: well-formed whatever names hold, failures for regressions, skips for no comparison."""

from xml.etree import ElementTree

import sample_report
from sample_report import slower

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.comparison_junit import render_junit


def comparison(before: Report, after: Report) -> Comparison:
    return compare(before, after, before_name="A", after_name="B")


def cases(content: bytes) -> dict[str, ElementTree.Element]:
    return {case.attrib["name"]: case for case in ElementTree.fromstring(content).iter("testcase")}


def test_regressions_fail_what_cannot_be_compared_is_skipped_and_the_rest_passes() -> None:
    full = sample_report.full_report()
    found = cases(render_junit(comparison(full, slower(full))))
    assert {name for name, case in found.items() if case.find("failure") is not None} == {
        "step_time",
        "throughput",
        "wall",
    }
    failure = found["step_time"].find("failure")
    assert "27.2 -> 40 ms (+47.1 %" in failure.attrib["message"]
    skipped = found["phase.forward"].find("skipped")
    assert "name the folders of both runs" in skipped.attrib["message"]
    assert found["memory.process_rss"].find("failure") is found["memory.process_rss"].find("skipped") is None


def test_counts_are_those_of_the_cases() -> None:
    full = sample_report.full_report()
    root = ElementTree.fromstring(render_junit(comparison(full, slower(full))))
    suite = root.find("testsuite")
    assert suite is not None
    for element in (root, suite):
        assert int(element.attrib["tests"]) == len(list(root.iter("testcase")))
        assert int(element.attrib["failures"]) == len(list(root.iter("failure"))) == 3
        assert int(element.attrib["skipped"]) == len(list(root.iter("skipped"))) > 0
        assert element.attrib["errors"] == "0"


def test_runs_that_are_not_comparable_only_have_skips() -> None:
    full = sample_report.full_report()
    content = render_junit(comparison(sample_report.minimal_report(), full))
    found = [case.find("skipped") for case in cases(content).values()]
    assert found
    advice = "repeat the earlier run with at least 30 steps"
    assert all(skipped is not None and advice in skipped.attrib["message"] for skipped in found)
    assert advice in (ElementTree.fromstring(content).findtext("testsuite/system-out") or "")


def test_only_the_measures_that_are_asked_for_are_written() -> None:
    full = sample_report.full_report()
    assert set(cases(render_junit(comparison(full, slower(full)), only=("wall", "step_time")))) == {"wall", "step_time"}


def test_hostile_names_leave_the_file_well_formed() -> None:
    hostile = sample_report.hostile_report()
    name = sample_report.HOSTILE + "\x00\ud800\ufffe"
    found = compare(hostile, hostile, before_name=name, after_name=name)
    content = render_junit(found)
    root = ElementTree.fromstring(content)
    assert any("script" in case.attrib["name"] for case in root.iter("testcase"))
    for character in ("<script", "\x00", "\x1b", "\u202e"):
        assert character not in content.decode()
