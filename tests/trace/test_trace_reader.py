"""Formats that the reader must take, and files that it must refuse with a way out."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest
from tiny_traces import Json, document, kineto_text, span, training_step, write
from trace_content import LABELS, TABLES, content

from lightning_gpuprof.errors import TraceError
from lightning_gpuprof.trace import compression
from lightning_gpuprof.trace.reader import Trace
from lightning_gpuprof.trace.tables import ABSENT

IDS = {"correlation", "external_id", "stream", "sequence", "forward_thread", "python_id", "parent_id"}


def read(tmp_path: Path, what: object, name: str = "t.json", **options: int) -> Trace:
    return Trace.read(write(tmp_path / name, what), **options)


def names(trace: Trace, table: str) -> list[str]:
    return [trace.names[i] for i in getattr(trace, table).name]


# ---------------------------------------------------------------- columns


def test_columns_hold_what_the_events_say(tmp_path: Path) -> None:
    trace = read(tmp_path, kineto_text(training_step(), baseTimeNanoseconds=17_000_000_000))
    assert names(trace, "kernel") == ["before the window", "gemm", "relu"]
    assert trace.kernel.start_ns.tolist() == [5_000, 50_000, 60_000]
    assert trace.kernel.end_ns.tolist() == [10_000, 70_000, 80_000]
    assert trace.kernel.duration_ns.tolist() == [5_000, 20_000, 20_000]
    assert trace.kernel.stream.tolist() == [7, 7, 9]
    assert trace.kernel.correlation.tolist() == [3, 11, 12]
    assert [trace.devices[i] for i in trace.kernel.device] == ["0", "0", "0"]
    assert trace.memcpy.size_bytes.tolist() == [4096]
    assert trace.kernel.size_bytes.tolist() == [ABSENT] * 3
    assert trace.cpu_op.external_id.tolist() == [2, 3]
    assert sorted(trace.runtime.correlation.tolist()) == [11, 12, 13]
    assert (trace.events, trace.base_time_ns, trace.unreadable) == (14, 17_000_000_000, 0)
    assert len(trace.device_work) == 4


def test_columns_have_the_promised_types(tmp_path: Path) -> None:
    trace = read(tmp_path, document(training_step()))
    for table in TABLES:
        spans = getattr(trace, table)
        for field in spans.__struct_fields__:
            column = getattr(spans, field)
            small = field in LABELS or field in IDS
            assert column.dtype == (np.int32 if small else np.int64), field
            assert len(column) == len(spans)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63 - 1])
def test_numbers_of_the_file_take_eight_bytes_only_where_they_must(tmp_path: Path, value: int) -> None:
    calls = [span("cuda_runtime", "a", 0, 1, correlation=value, External_id=3), span("cuda_runtime", "a", 2, 1)]
    trace = read(tmp_path, document(calls))
    assert trace.runtime.correlation.tolist() == [value, -1]
    fits = -(2**31) <= value < 2**31
    assert trace.runtime.correlation.dtype == (np.int32 if fits else np.int64)
    assert trace.runtime.external_id.dtype == np.int32


def test_an_empty_list_of_events_is_a_trace(tmp_path: Path) -> None:
    trace = read(tmp_path, document([]))
    assert trace.events == 0
    assert all(len(getattr(trace, table)) == 0 for table in TABLES)
    assert trace.base_time_ns is None


def test_threads_of_two_processes_are_two_threads(tmp_path: Path) -> None:
    trace = read(tmp_path, document([span("cpu_op", "a", 0, 1, pid=1), span("cpu_op", "a", 0, 1, pid=2)]))
    assert len(set(trace.cpu_op.thread.tolist())) == 2


# ---------------------------------------------------------------- containers and layouts


@pytest.mark.parametrize("name", ["t.pt.trace.json", "t.pt.trace.json.gz"])
def test_plain_and_gzip_read_the_same(tmp_path: Path, name: str) -> None:
    text = kineto_text(training_step())
    trace = read(tmp_path, text, name)
    assert content(trace) == content(read(tmp_path, text, "reference.json"))
    assert trace.bytes_json == len(text)


def test_compression_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(gzip.compress(kineto_text(training_step()).encode()))
    (tmp_path / "t.json.gz").write_text(kineto_text(training_step()))
    assert Trace.read(tmp_path / "t.json").events == Trace.read(str(tmp_path / "t.json.gz")).events == 14


LAYOUTS = {
    "kineto": kineto_text(training_step(), traceName="x"),
    "compact": json.dumps(document(training_step()), separators=(",", ":")),
    "one line": json.dumps(document(training_step())),
    "indent 1": json.dumps(document(training_step()), indent=1),
    "indent 2": json.dumps(document(training_step()), indent=2),
    "tabs": json.dumps(document(training_step()), indent="\t"),
    "windows line ends": kineto_text(training_step()).replace("\n", "\r\n"),
    "bare list": json.dumps(training_step()),
    "bare list, indented": "\n" + json.dumps(training_step(), indent=2),
    "list in kineto layout": kineto_text(training_step()).partition('"traceEvents": ')[2].rpartition("}")[0],
    "byte order mark": "\ufeff" + kineto_text(training_step()),
}


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 200, 301, 1000, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_the_same_wherever_it_is_cut(tmp_path: Path, layout: str, block_bytes: int) -> None:
    trace = read(tmp_path, LAYOUTS[layout], block_bytes=block_bytes)
    assert content(trace) == content(read(tmp_path, document(training_step()), "reference.json"))
    assert (trace.events, trace.how) == (14, "stream")
    assert trace.bytes_json == len(LAYOUTS[layout].encode())


def test_a_cut_in_the_wrong_place_is_noticed(tmp_path: Path) -> None:
    """A list behind the events in the very layout of the events: cutting there must not lose or invent events."""
    text = kineto_text(training_step())
    lookalike = ',\n  "more": [\n  {\n    "ph": "X"\n  },\n  {\n    "ph": "X"\n  }\n  ]\n}\n'
    text = text.rstrip().removesuffix("}").rstrip() + lookalike
    trace = read(tmp_path, text, block_bytes=len(text) - 12)
    assert (trace.how, trace.events) == ("whole", 14)


def test_large_keys_after_the_events_are_no_hindrance(tmp_path: Path) -> None:
    blob = ["x" * 100, '"traceEvents": [', "},{", "\n  },\n  {"] * 200
    trace = read(tmp_path, kineto_text(training_step(), blob=blob, baseTimeNanoseconds=5), block_bytes=512)
    assert trace.how == "stream"
    assert (trace.events, trace.base_time_ns) == (14, 5)


# ---------------------------------------------------------------- spellings and types


def test_old_and_new_spelling_of_categories_are_the_same(tmp_path: Path) -> None:
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
    }
    events = [span(new, "n", 1, 2, device=0, stream=1, correlation=3, External_id=4, bytes=5) for new in old]
    renamed = [{**event, "cat": old[str(event["cat"])]} for event in events]
    assert content(read(tmp_path, document(renamed))) == content(read(tmp_path, document(events)))
    assert sum(len(spans) for spans in content(read(tmp_path, document(renamed))).values()) == 5


def test_driver_launches_are_launches(tmp_path: Path) -> None:
    trace = read(tmp_path, document([span("cuda_driver", "cuLaunchKernelEx", 0, 1, correlation=4)]))
    assert trace.runtime.correlation.tolist() == [4]


def test_flows_instants_and_other_categories_are_counted_but_not_tabled(tmp_path: Path) -> None:
    events: list[Json] = [
        {"ph": phase, "cat": cat, "name": "n", "ts": 0, "id": 1, "pid": 0, "tid": 0}
        for phase, cat in [("s", "async"), ("f", "async_gpu"), ("s", "ac2g"), ("i", "cpu_op"), ("b", "kernel")]
    ]
    events += [span("gpu_user_annotation", "ProfilerStep#1", 0, 1), span("Trace", "t", 0, 1), {"ph": "M", "name": "x"}]
    trace = read(tmp_path, document(events))
    assert trace.events == 8
    assert not any(content(trace).values())


def test_ids_may_be_text(tmp_path: Path) -> None:
    event = span("gpu_memcpy", "m", 0, 1, pid="0", tid="7", device="3", stream="7", correlation="12", bytes="4096")
    trace = read(tmp_path, document([event, span("kernel", "k", 0, 1, device=3, stream=7, correlation=13)]))
    assert trace.memcpy.correlation.tolist() == [12]
    assert trace.memcpy.stream.tolist() == [7]
    assert trace.memcpy.size_bytes.tolist() == [4096]
    assert trace.devices == ("3",)  # "3" and 3 are one device


@pytest.mark.parametrize("nothing", [2**64 - 1, 2**70, "N/A", None, ""])
def test_ids_that_name_nothing_are_absent(tmp_path: Path, nothing: object) -> None:
    trace = read(
        tmp_path, document([span("kernel", "k", 0, 1, correlation=nothing), span("kernel", "k", 0, 1, correlation=5)])
    )
    assert trace.kernel.correlation.tolist() == [ABSENT, 5]


def test_names_may_be_numbers(tmp_path: Path) -> None:
    trace = read(tmp_path, document([span("cpu_op", 5, 0, 1), span("cpu_op", "5", 2, 1), span("cpu_op", None, 4, 1)]))
    assert names(trace, "cpu_op") == ["5", "5", ""]
    assert trace.cpu_op.name[0] == trace.cpu_op.name[1]


def test_external_id_of_the_oldest_traces(tmp_path: Path) -> None:
    event = span("Kernel", "k", 0, 1)
    event["args"] = {"external id": 9}
    assert read(tmp_path, document([event])).kernel.external_id.tolist() == [9]


def test_device_falls_back_to_the_process_row(tmp_path: Path) -> None:
    trace = read(tmp_path, document([span("kernel", "k", 0, 1, pid=2), span("kernel", "k", 0, 1, device_id=4, pid=2)]))
    assert [trace.devices[i] for i in trace.kernel.device] == ["2", "4"]


def test_an_event_without_a_time_has_no_place_in_a_table(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "kernel", "name": "k", "dur": 3}, span("kernel", "k", None, 1), {}]
    trace = read(tmp_path, document(events))
    assert (trace.events, len(trace.kernel)) == (3, 0)


@pytest.mark.parametrize("ts", ["NaN", "sNaN", "Infinity", "-Infinity"])
def test_a_time_that_is_no_number_is_none(tmp_path: Path, ts: str) -> None:
    trace = read(tmp_path, document([span("kernel", "k", ts, 1), span("kernel", "k", "5", 1)]))
    assert (trace.events, trace.kernel.start_ns.tolist()) == (2, [5_000])


def test_a_negative_duration_does_not_end_before_its_start(tmp_path: Path) -> None:
    trace = read(tmp_path, document([span("kernel", "k", 10, -3)]))
    assert trace.kernel.end_ns.tolist() == [10_000]


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("ts", "expected_ns"),
    [
        ("1712195495406752.875", 1_712_195_495_406_752_875),
        ("1712195495406752.001", 1_712_195_495_406_752_001),
        ("1712195495406752", 1_712_195_495_406_752_000),
        ("6869181217913.045", 6_869_181_217_913_045),
        ("8796093022207.999", 8_796_093_022_207_999),
        ("8796093022208.001", 8_796_093_022_208_001),
        ("0.001", 1),
        ('"1712195495406752.123"', 1_712_195_495_406_752_123),
        ("1.5e3", 1_500_000),
        ("-2.5", -2_500),
    ],
)
def test_times_keep_every_nanosecond_of_the_text(tmp_path: Path, ts: str, expected_ns: int) -> None:
    text = json.dumps([span("kernel", "k", "TS", 0.123)]).replace('"TS"', ts)
    trace = read(tmp_path, text)
    assert trace.kernel.start_ns.tolist() == [expected_ns]
    assert trace.kernel.duration_ns.tolist() == [123]


@pytest.mark.parametrize("near_us", [8_796_093_022_207, 4_503_599_627_370, 4_458_677_083_431, 4_398_046_511_104, 1000])
def test_times_that_go_through_float64_are_exact(tmp_path: Path, near_us: int) -> None:
    """At the powers of two where float64 and its product with 1000 are coarsest, all must equal the text."""
    texts = [f"{near_us - i % 1000}.{i % 997:03d}" for i in range(4000)]
    events = [f'{{"ph":"X","cat":"kernel","name":"k","ts":{text},"dur":{text[-5:]}}}' for text in texts]
    trace = read(tmp_path, f"[{','.join(events)}]")
    assert trace.kernel.start_ns.tolist() == [int(text.replace(".", "")) for text in texts]
    assert trace.kernel.duration_ns.tolist() == [int(text[-5:].replace(".", "")) for text in texts]


def test_times_stay_exact_in_every_piece_of_a_stream(tmp_path: Path) -> None:
    events = [span("cpu_op", "a", 1712195495406752 + i, 1) for i in range(50)]
    text = kineto_text(events).replace('"dur"', '"x": 0, "dur"')
    for i in range(50):
        text = text.replace(f'"ts": {1712195495406752 + i},', f'"ts": {1712195495406752 + i}.{i:03d},')
    trace = read(tmp_path, text, block_bytes=400)
    assert trace.how == "stream"
    assert trace.cpu_op.start_ns.tolist() == [1712195495406752000 + 1001 * i for i in range(50)]


# ---------------------------------------------------------------- text that is not quite JSON


def test_bare_words_are_read_as_nothing(tmp_path: Path) -> None:
    text = kineto_text([span("kernel", 'N/A and nan, "N/A"', 0, 1, device=0, stream="A", bytes="B", registers="C")])
    text = text.replace('"A"', "N/A").replace('"B"', "-nan").replace('"C"', "inf")
    trace = read(tmp_path, text)
    assert trace.how == "repaired"
    assert trace.kernel.stream.tolist() == [ABSENT]
    assert names(trace, "kernel") == ['N/A and nan, "N/A"']


@pytest.mark.parametrize(("written", "name"), [("a\nb\x01c", "a\nb\x01c"), (r"C:\Users\\x\u0041\"", 'C:\\Users\\xA"')])
def test_control_characters_and_backslashes_that_escape_nothing_are_kept(
    tmp_path: Path, written: str, name: str
) -> None:
    trace = read(tmp_path, f'[{{"ph":"X","cat":"cpu_op","name":"{written}","ts":1,"dur":1}}]')
    assert names(trace, "cpu_op") == [name]


def test_latin_1_names_are_kept(tmp_path: Path) -> None:
    text = json.dumps([span("cpu_op", "fen\xeatre", 1, 1)], ensure_ascii=False)
    assert names(read(tmp_path, text.encode("latin-1")), "cpu_op") == ["fen\xeatre"]
    assert names(read(tmp_path, text.encode("utf-8")), "cpu_op") == ["fen\xeatre"]


def test_a_repair_keeps_times_exact(tmp_path: Path) -> None:
    text = json.dumps([span("kernel", "k", "TS", 1, queued="Q")]).replace('"TS"', "1712195495406752.873")
    assert read(tmp_path, text.replace('"Q"', "N/A")).kernel.start_ns.tolist() == [1_712_195_495_406_752_873]


def test_one_entry_of_another_shape_costs_only_itself(tmp_path: Path) -> None:
    strange: list[object] = [7, None, "text", {"ph": "X", "cat": "kernel", "name": ["k"], "ts": 0}]
    trace = read(tmp_path, {"traceEvents": [*training_step(), *strange], "baseTimeNanoseconds": 3})
    assert trace.how == "one by one"
    assert (trace.events, trace.unreadable, trace.base_time_ns) == (18, 4, 3)
    assert content(trace) == content(read(tmp_path, document(training_step())))


# ---------------------------------------------------------------- files that are no traces


def refused(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        Trace.read(path)
    text = str(caught.value)
    assert text.startswith(str(path)), "the message begins with the file"
    assert text.endswith("."), "the message is a sentence with a way out"
    return text


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.json")


def test_a_folder_is_refused_and_its_traces_are_named(tmp_path: Path) -> None:
    assert "folder" in refused(tmp_path)
    write(tmp_path / "rank0.1.pt.trace.json.gz", "[]")
    assert "rank0.1.pt.trace.json.gz" in refused(tmp_path)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, text: str) -> None:
    assert "empty" in refused(write(tmp_path / name, text))


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("missing", [1, 2, 3, 20, 150, 1500])
def test_json_that_is_cut_off_is_refused(tmp_path: Path, name: str, missing: int) -> None:
    assert "truncated" in refused(write(tmp_path / name, kineto_text(training_step()).rstrip()[:-missing]))


@pytest.mark.parametrize("block_bytes", [200, 1 << 20])
def test_json_that_is_cut_off_is_refused_in_a_stream(tmp_path: Path, block_bytes: int) -> None:
    path = write(tmp_path / "t.json", kineto_text(training_step())[:-300])
    with pytest.raises(TraceError, match="truncated"):
        Trace.read(path, block_bytes=block_bytes)


@pytest.mark.parametrize("missing", [1, 8, 100])
def test_gzip_that_is_cut_off_or_broken_is_refused(tmp_path: Path, missing: int) -> None:
    packed = write(tmp_path / "t.json.gz", kineto_text(training_step())).read_bytes()
    for data, why in (
        (packed[:-missing], "truncated"),
        (packed[:-8] + b"\0\0\0\0" + packed[-4:], "broken"),  # the checksum
        (b"\x1f\x8bthis is not gzip", "broken"),
    ):
        (tmp_path / "t.json.gz").write_bytes(data)
        assert why in refused(tmp_path / "t.json.gz")


@pytest.mark.parametrize(
    ("what", "why"),
    [
        *((data, "not JSON") for data in (b"PK\x03\x04 a zip", b"\x0a\x8a\x01perfetto", b"hello", b"\x00" * 100)),
        *((data, "not JSON") for data in (b'"text"', b"7")),
        *((what, "not a Kineto trace") for what in ({"a": 1}, {"traceEvents": {}}, {"traceEvents": None}, {})),
        ([1, 2], "no trace events"),
        (kineto_text(training_step()) + "}", "JSON"),
        ("[" * 100_000, ""),  # nesting without end
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, what: object, why: str) -> None:
    assert why in refused(write(tmp_path / "t.json", what))


@pytest.mark.parametrize("ts", ["1e300", "99999999999999999999", "1e999", "1e99999999", '"1e999999"'])
def test_a_time_beyond_64_bits_is_refused(tmp_path: Path, ts: str) -> None:
    assert refused(write(tmp_path / "t.json", json.dumps([span("kernel", "k", "TS", 1)]).replace('"TS"', ts)))


# ---------------------------------------------------------------- limits


def test_a_gzip_bomb_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """48 MB of an event without an end, in less than 1 MB."""
    monkeypatch.setattr(compression, "BOMB_BYTES", 1 << 25)
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents": [\n  {\n    "name": "')
        block = b"x" * (1 << 24)
        for _ in range(3):
            file.write(block)
    with pytest.raises(TraceError, match=r"bomb.json.gz: unpacks to more than 200 times its size|cannot be read in pi"):
        Trace.read(path)


def test_a_bomb_of_events_is_refused_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "BOMB_BYTES", 1 << 20)
    path = write(tmp_path / "t.json.gz", kineto_text(training_step()[-2:] * 100_000))
    with pytest.raises(TraceError, match="200 times its size"):
        Trace.read(path)


def test_an_open_file_is_read_as_its_path_is(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json.gz", kineto_text(training_step()))
    expected = content(Trace.read(path))
    with path.open("rb") as file:
        assert content(Trace.read(file)) == expected
        assert not file.closed
    assert content(Trace.read(io.BytesIO(path.read_bytes()))) == expected
    assert content(Trace.read(io.BytesIO(kineto_text(training_step()).encode()))) == expected


def test_frames_that_are_not_wanted_are_counted_only(tmp_path: Path) -> None:
    events = [*training_step(), span("python_function", "t.py(3): f", 1, 2, Python_id=1)]
    for wanted in (True, False):
        trace = Trace.read(write(tmp_path / "t.json", kineto_text(events)), frames=wanted)
        assert len(trace.python_function) == wanted
        assert trace.with_frames == wanted
        assert trace.categories["python_function"] == 1
        assert trace.events == 15
