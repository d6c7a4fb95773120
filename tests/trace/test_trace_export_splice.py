"""Events are added to the text of a trace, and every other byte of it stays."""

import io
import json
import random

import pytest
from tiny_traces import Json, document, kineto_text, span, training_step

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace.export.splice import spliced

NEW = [{"ph": "X", "name": "one ] } [ {"}, {"ph": "X", "name": 'two "\\'}]
BODIES = [json.dumps(event)[1:-1].encode() for event in NEW]

ODD_NAMES = ['a "quoted" ]', "back\\slash\\", "\\\\", "}}]]", "{[", '\\"', "\n", "é ✓", '"traceEvents": [', ""]


def events(rng: random.Random, count: int) -> list[Json]:
    return [
        span("cpu_op", rng.choice(ODD_NAMES), at, 1, args={"list": [[1, [2]], {}], rng.choice(ODD_NAMES): "]"})
        for at in range(count)
    ]


def texts(rng: random.Random, count: int) -> dict[str, str]:
    """Documents with the same events in the layouts that writers use."""
    of_trace = events(rng, count)
    tail: dict[str, object] = {"traceName": "x ]", "more": [{"traceEvents": [1]}, []], "displayTimeUnit": "ms"}
    nested: Json = {"metadata": {"traceEvents": [{"ph": "X"}]}, "note": '"traceEvents": [', "list": ["traceEvents"]}
    return {
        "kineto": kineto_text(of_trace, **tail),
        "compact": json.dumps(document(of_trace, **tail), separators=(",", ":")),
        "spaced": json.dumps(document(of_trace, **tail)),
        "indented": json.dumps(document(of_trace, **tail), indent=4, ensure_ascii=False),
        "tabs": json.dumps(document(of_trace, **tail), indent="\t"),
        "bare list": json.dumps(of_trace),
        "bare list, indented": f" \n{json.dumps(of_trace, indent=1)}\n",
        "list of another name before": json.dumps({**nested, "traceEvents": of_trace, **tail}),
        "events last": json.dumps({**tail, "traceEvents": of_trace}, indent=2),
        "spaces around": f'{{ "traceEvents" : \r\n [ {json.dumps(of_trace)[1:-1]} \r\n ] , "x" : 1 }}',
    }


def list_of(text: str) -> list[Json]:
    read = json.loads(text)
    return list(read) if isinstance(read, list) else list(read["traceEvents"])


@pytest.mark.parametrize("layout", texts(random.Random(0), 1))
@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 61, 1 << 20])
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_new_events_stand_at_the_end_of_the_list_and_nothing_else_changes(
    layout: str, block_bytes: int, count: int
) -> None:
    text = texts(random.Random(count), count)[layout]
    raw = text.encode()
    result = b"".join(spliced(io.BytesIO(raw), BODIES, block_bytes=block_bytes))
    assert list_of(result.decode()) == list_of(text) + NEW
    added = len(result) - len(raw)
    assert any(result[:at] + result[at + added :] == raw for at in range(len(raw) + 1) if result[:at] == raw[:at]), (
        "something else changed, too"
    )


@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
def test_without_new_events_the_text_is_the_same(block_bytes: int) -> None:
    raw = kineto_text(training_step()).encode()
    assert b"".join(spliced(io.BytesIO(raw), [], block_bytes=block_bytes)) == raw


def test_new_events_are_laid_out_as_kineto_does_so_that_readers_can_cut_between_them() -> None:
    text = b"".join(spliced(io.BytesIO(kineto_text(training_step()).encode()), BODIES)).decode()
    assert text.count("\n  },\n  {") == len(training_step()) + len(NEW) - 1


def test_a_byte_order_mark_is_left_out() -> None:
    raw = b'\xef\xbb\xbf{"traceEvents": []}'
    assert json.loads(b"".join(spliced(io.BytesIO(raw), BODIES)))["traceEvents"] == NEW


def test_text_that_is_no_utf8_stays_as_it_is() -> None:
    raw = '[{"name": "größe ]"}]'.encode("latin-1")
    assert b"".join(spliced(io.BytesIO(raw), [b'"a": 1'])) == '[{"name": "größe ]"},{"a": 1}]'.encode("latin-1")


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": {}}', '{"a": [{"traceEvents": []}]}', '"traceEvents": []'])
def test_text_without_a_list_of_events_is_refused(text: str) -> None:
    with pytest.raises(TraceError, match="no 'traceEvents' list"):
        list(spliced(io.BytesIO(text.encode()), BODIES))


@pytest.mark.parametrize("cut", [1, 10, 40])
@pytest.mark.parametrize("block_bytes", [3, 1 << 20])
def test_a_list_that_does_not_end_is_refused(cut: int, block_bytes: int) -> None:
    raw = json.dumps({"traceEvents": training_step()}).encode()
    with pytest.raises(TraceError, match="truncated"):
        list(spliced(io.BytesIO(raw[: -2 - cut]), BODIES, block_bytes=block_bytes))


def test_big_text_is_passed_on_block_by_block() -> None:
    raw = kineto_text(training_step() * 2000).encode()
    blocks = list(spliced(io.BytesIO(raw), BODIES, block_bytes=1 << 12))
    assert max(map(len, blocks)) <= (1 << 12) + 1
    assert len(b"".join(blocks)) > len(raw) > 1 << 19
