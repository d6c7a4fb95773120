import msgspec
from empty_structs import empty
from sample_report import HOSTILE, full_report

from lightning_gpuprof.model.input_pipeline import InputLoader, InputPart, InputPipeline, InputQueue, InputWorker
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import input_tables
from lightning_gpuprof.sinks.html import render_html


def with_input(**changes: object) -> Report:
    found = InputPipeline(
        verdict="processing",
        summary="2 workers deliver a batch every 20.0 ms, a step needs 6.00 ms and then waits 14.0 ms",
        step_ms=6.0,
        wait_ms=14.0,
        waited_ratio=0.98,
        enough_workers=7,
        loaders=(
            InputLoader(
                loader=0, workers=2, make_ms=40.0, items_ms=39.0, collate_ms=1.0, deliver_ms=20.0, idle_ratio=0.01
            ),
        ),
        workers=(
            empty(
                InputWorker,
                process="worker0",
                batches=50,
                measured=50,
                items_ms=39.0,
                collate_mean_ms=1.0,
                collate_max_ms=2.0,
                idle_ms=0.3,
                idle_ratio=0.01,
            ),
        ),
        parts=(
            InputPart(loader=0, kind="transform", name=HOSTILE, calls=400, mean_ms=3.0, max_ms=9.0, share=0.6),
            InputPart(loader=0, kind="region", name="decode", calls=None, mean_ms=None, max_ms=None, share=0.3),
            InputPart(loader=0, kind="transform", name="small", calls=400, mean_ms=0.01, max_ms=0.1, share=0.01),
        ),
        queues=(
            InputQueue(
                loader=0,
                looks=30,
                workers=2,
                capacity=4,
                depth_mean=0.1,
                depth_max=1.0,
                empty_ratio=0.9,
                unpinned_mean=None,
            ),
        ),
        slowest=0,
    )
    return msgspec.structs.replace(full_report(), input=msgspec.structs.replace(found, **changes))


def test_the_terminal_gets_the_verdict_with_its_numbers_and_what_costs_most() -> None:
    verdict, parts = input_tables.lines(with_input())
    assert verdict.startswith("processing: 2 workers deliver a batch every 20.0 ms")
    assert "decode 30.0 %" in parts
    assert "small" not in parts


def test_nothing_is_said_where_nothing_was_measured() -> None:
    report = msgspec.structs.replace(full_report(), input=None)
    assert input_tables.lines(report) == []
    assert input_tables.inner_tables(report) == []
    assert input_tables.ABSENT in render_html(report)


def test_the_page_has_processes_parts_and_queues() -> None:
    page = render_html(with_input())
    for title in ("Loading processes", "Transforms and regions", "Queues of finished batches"):
        assert title in page
    assert "<script>alert" not in page


def test_a_report_with_an_input_pipeline_is_read_back_as_it_was() -> None:
    report = with_input()
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
