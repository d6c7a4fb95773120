"""The cutter: pieces hold whole events, and none is much larger than a block."""

import io
import json

import pytest
from tiny_traces import kineto_text, span, training_step

from lightning_gpuprof.trace.chunks import Pieces

MANY = [span("cpu_op", f"op {i} }},{{ ]", i, 1, External_id=i) for i in range(300)]


@pytest.mark.parametrize("block_bytes", [400, 1000, 5000])
def test_pieces_hold_every_event_once_and_in_order(block_bytes: int) -> None:
    text = kineto_text(MANY, traceName="x").encode()
    *pieces, last = Pieces(io.BytesIO(text), block_bytes=block_bytes)
    events = [event for piece in pieces for event in json.loads(piece)]
    document = json.loads(last)
    assert events + document["traceEvents"] == MANY
    assert document["traceName"] == "x"
    assert document["deviceProperties"] == [{"id": 0}, {"id": 1}]


def test_no_piece_is_much_larger_than_a_block() -> None:
    text = kineto_text(MANY).encode()
    largest = max(len(json.dumps(event)) for event in MANY) + 20
    pieces = list(Pieces(io.BytesIO(text), block_bytes=2000))
    assert len(pieces) > 10
    assert max(map(len, pieces)) < 2000 + 2 * largest + len(kineto_text([]))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "text",
    [
        kineto_text(MANY),
        json.dumps({"traceEvents": MANY}, indent=2),
        "[\n" + ",\n".join(json.dumps(event) for event in MANY) + "\n]",
        "[\n  " + ",\n  ".join(json.dumps(event) for event in MANY) + "\n]",
    ],
    ids=["kineto", "indented", "a line for each", "an indented line for each"],
)
def test_layouts_of_lines_are_cut(text: str, line_end: str) -> None:
    pieces = list(Pieces(io.BytesIO(text.replace("\n", line_end).encode()), block_bytes=2000))
    assert len(pieces) > 10
    last = json.loads(pieces[-1])
    events = [event for piece in pieces[:-1] for event in json.loads(piece)]
    assert events + (last if isinstance(last, list) else last["traceEvents"]) == MANY


def test_bytes_read_are_counted() -> None:
    text = kineto_text(training_step()).encode()
    pieces = Pieces(io.BytesIO(text), block_bytes=100)
    assert pieces.bytes_read == 0
    assert list(pieces)
    assert pieces.bytes_read == len(text)


def test_text_without_events_is_one_piece() -> None:
    assert list(Pieces(io.BytesIO(b'{"a": [1, 2]}'), block_bytes=4)) == [b'{"a": [1, 2]}']
    assert list(Pieces(io.BytesIO(b""))) == [b""]


class Unseekable:
    def __init__(self, stream: io.BytesIO) -> None:
        self.read = stream.read


@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("layout", ["kineto", "compact"])
@pytest.mark.parametrize("block_bytes", [150, 1000, 1 << 20])
def test_two_that_share_a_byte_share_out_the_events(layout: str, block_bytes: int, seekable: bool) -> None:
    few = MANY[:25]
    text = (
        kineto_text(few, traceName="x") if layout == "kineto" else json.dumps({"traceEvents": few, "a": 1})
    ).encode()

    def stream() -> io.BytesIO | Unseekable:
        return io.BytesIO(text) if seekable else Unseekable(io.BytesIO(text))

    for byte in range(1, len(text) + 50):
        before = Pieces(stream(), block_bytes=block_bytes, stop=byte)
        behind = Pieces(stream(), block_bytes=block_bytes, begin=byte)
        found = [json.loads(piece) for piece in before]
        assert before.ended_early == (not isinstance(found[-1], dict))
        found += [json.loads(piece) for piece in behind]
        documents = [piece for piece in found if isinstance(piece, dict)]
        assert len(documents) == 1
        events = [event for piece in found for event in (piece["traceEvents"] if isinstance(piece, dict) else piece)]
        assert events == few
