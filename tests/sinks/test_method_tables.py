import io

import msgspec
import pytest
from sample_report import HOSTILE, full_report, minimal_report

from lightning_gpuprof.model.finding import CombinedGain
from lightning_gpuprof.model.method import LEVEL_QUESTIONS, Check, Cost, Level, Method, Outlook
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import html, json_report, method_tables, tensorboard_text
from lightning_gpuprof.sinks.terminal import print_report


def with_method(report: Report, text: str = "It is known.") -> Report:
    """The same report with all levels, of which the operation is folded, and a checklist of three boxes."""
    levels = tuple(
        Level(
            name=name,
            answer=text,
            holds=name != "operation",
            unfolded=name != "operation",
            why="the run is input-bound" if name == "operation" else "",
            lines=(text, "and more"),
        )
        for name in LEVEL_QUESTIONS
    )
    checklist = (
        Check(group="baseline", text="a metric is defined", state="yes", evidence=text),
        Check(group="component", text="table and trace are both there", state="no", evidence="no trace"),
        Check(group="bottleneck", text="GPU utilization is checked", state="not applicable", evidence="no GPU"),
    )
    return msgspec.structs.replace(
        report,
        method=Method(levels=levels, checklist=checklist),
        combined=CombinedGain(
            period_ms=30.0,
            saved_ms_per_step=10.0,
            step_speedup_max=1.5,
            run_ms_per_step=40.0,
            saved_run_ms_per_step=20.0,
            run_speedup_max=2.0,
        ),
        target=Outlook(target="1.3x", reached=False, reachable=True, summary=text),
        cost=Cost(gpu_hours=12.0, price_per_million_samples=3.5, joules_per_sample=0.2),
    )


def terminal(report: Report) -> str:
    stream = io.StringIO()
    print_report(report, stream)
    return stream.getvalue()


def test_a_short_summary_adds_what_verdict_and_findings_do_not_say() -> None:
    said = dict(method_tables.lines(with_method(full_report())))
    assert said["operation"] == "not analysed: the run is input-bound"
    # What lies beside the step may gain more than the whole step has: the number of the run comes first.
    assert said["all changes together"] == (
        "the run without setup and teardown up to 2x (saves 20 of 40 ms per step); "
        "the ordinary step 30 -> 20 ms at best (up to 1.50x)"
    )
    assert said["checklist"] == "1 of 2 checks passed; open: table and trace are both there"
    assert said["target"] == "It is known."
    assert "price of a million samples 3.5" in said["cost"]
    assert "bottleneck" not in said


@pytest.mark.parametrize(
    ("step_ms", "words"),
    [
        (20.0, "step 30 -> 10 ms at best (up to 3x), the run without setup and teardown up to 2x"),
        (0.0, "the run without setup and teardown up to 2x (saves 20 of 40 ms per step)"),
    ],
)
def test_gains_of_the_step_alone_or_beside_it_alone_are_one_number(step_ms: float, words: str) -> None:
    gain = CombinedGain(
        period_ms=30.0,
        saved_ms_per_step=step_ms,
        step_speedup_max=30.0 / (30.0 - step_ms),
        run_ms_per_step=40.0,
        saved_run_ms_per_step=20.0,
        run_speedup_max=2.0,
    )
    assert method_tables.combined(gain) == words


def test_all_sinks_hold_levels_and_checklist() -> None:
    report = with_method(full_report())
    shown = terminal(report)
    assert (
        shown.index("Findings, most valuable first")
        < shown.index("How the findings were made")
        < shown.index("Next step")
    )
    assert "1 of 2 checks passed" in shown
    page = html.render_html(report)
    assert page.index('id="wall"') < page.index('id="findings"') < page.index('id="method"')
    for words in ("Checklist: 1 of 2 checks passed", "How fast is it?", "and more", "not applicable"):
        assert words in page
    text = tensorboard_text.markdown(report)
    assert "How the findings were made" in text
    assert "Checklist" in text


@pytest.mark.parametrize("make", [full_report, minimal_report])
def test_reports_without_the_method_are_shown_without_it(make: type[Report]) -> None:
    report = make()
    assert "How the findings were made" not in terminal(report)
    assert "has no levels of the method" in html.render_html(report)
    assert "How the findings were made" not in tensorboard_text.markdown(report)


def test_hostile_text_stays_text() -> None:
    report = with_method(full_report(), HOSTILE)
    assert "<script>alert" not in html.render_html(report)
    assert "\x1b" not in terminal(report)
    assert "<script>" not in tensorboard_text.markdown(report)


def test_it_comes_back_from_json() -> None:
    report = with_method(full_report())
    assert msgspec.json.decode(json_report.encode(report), type=Report) == report
