"""The longest single events of a trace, by category."""

from tiny_traces import linked_trace, span

from lightning_gpuprof.trace.analyses.calls.events import MAX_EACH, longest_events


def test_each_category_has_its_longest_events_with_when_and_where_they_were() -> None:
    found = longest_events(
        linked_trace(
            [
                span("user_annotation", "ProfilerStep#3", 100, 90),
                span("cpu_op", "aten::add", 110, 5),
                span("cpu_op", "aten::mm", 120, 20),
                span("kernel", "gemm", 130, 40, pid=0, tid=7, device=0, stream=7, correlation=1),
            ]
        )
    )
    rows = {of.category: of for of in found.categories}
    assert {category: of.count for category, of in rows.items()} == {"kernel": 1, "operator": 2, "range": 1}
    assert [(row.name, row.start_us, row.duration_us) for row in rows["operator"].longest] == [
        ("aten::mm", 20, 20),
        ("aten::add", 10, 5),
    ]
    (kernel,), (step,) = rows["kernel"].longest, rows["range"].longest
    assert (kernel.device, kernel.stream, kernel.start_us) == ("0", 7, 30)
    assert (step.device, step.stream, step.thread) == (None, None, rows["operator"].longest[0].thread)


def test_of_many_events_the_longest_stay_and_all_are_counted() -> None:
    (of,) = longest_events(linked_trace([span("cpu_op", "aten::add", 10 * n, n % 7) for n in range(50)])).categories
    assert (of.count, len(of.longest)) == (50, MAX_EACH)
    assert {row.duration_us for row in of.longest} == {6}


def test_a_trace_without_events_has_no_categories() -> None:
    assert longest_events(linked_trace([])).categories == ()
