"""The table of single events."""

from table_texts import texts

from lightning_gpuprof.model.trace.events import EventRow, Events, EventsOfCategory
from lightning_gpuprof.sinks.window_tables.events import event_table


def event(name: str, *, device: str | None = None, stream: int | None = None) -> EventRow:
    return EventRow(start_us=1500.0, duration_us=20.0, name=name, thread="12/34", device=device, stream=stream)


def test_an_event_shows_when_and_where_it_was_and_keeps_its_number() -> None:
    found = Events(
        categories=(
            EventsOfCategory(
                category="kernel", count=900, longest=(event("void gemm<int>(int)", device="0", stream=7),)
            ),
            EventsOfCategory(category="range", count=9, longest=(event("ProfilerStep#3"),) * 9),
        )
    )
    rows = texts(event_table(found))
    assert rows[0] == ["kernel", "1.50", "0.0200", "GPU 0, stream 7", "gemm<int>"]
    assert rows[1] == ["range", "1.50", "0.0200", "12/34", "ProfilerStep#3"]
    assert len(rows) == 10


def test_without_events_the_table_says_so() -> None:
    assert event_table(Events(categories=())).absent == "The trace has no events."
