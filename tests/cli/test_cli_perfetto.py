"""``gpuprof trace FILE --perfetto``: the annotated trace, served once to a real HTTP client."""

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

import pytest

from lightning_gpuprof.cli import perfetto
from lightning_gpuprof.errors import GpuProfError

NAME = "rank0 <1>&#?.annotated.json.gz"
DATA = os.urandom(1000) * 40_000
"""More than the buffers of a connection hold."""
WAIT_S = 120.0
EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 0.0, "dur": 100.0},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.0, "dur": 30.0, "args": {"device": 0}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 60.0, "dur": 30.0, "args": {"device": 0}},
]


class Served:
    """A server in a thread of its own, as a user has it in a terminal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        said: Queue[str] = Queue()
        self._thread = threading.Thread(
            target=perfetto.serve_once, args=(path, said.put), kwargs={"port": 0, "wait_s": WAIT_S}, daemon=True
        )
        self._thread.start()
        self.said = said.get(timeout=WAIT_S)
        (self.file,) = parse_qs(urlsplit(self.said).fragment.removeprefix("!/?"))["url"]
        parts = urlsplit(self.said.partition("url=")[2])
        self.host, self.target = parts.netloc, parts.path

    def ask(self, method: str = "GET", target: str | None = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self.host, timeout=WAIT_S)
        connection.request(method, self.target if target is None else target, headers=headers)
        return connection.getresponse()

    def ends(self) -> bool:
        self._thread.join(WAIT_S)
        return not self._thread.is_alive()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    path = tmp_path / NAME
    path.write_bytes(DATA)
    server = Served(path)
    yield server
    with contextlib.suppress(ConnectionError):  # the test took it
        server.ask().read()
    assert server.ends()


def test_the_address_is_perfetto_s_with_the_file_on_this_machine(served: Served) -> None:
    assert served.said.startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    assert not set(" <>&%#?") & set(served.target)
    assert perfetto.PORT == 9001


def test_the_whole_file_is_given_to_perfetto_s_page_and_then_no_more(served: Served) -> None:
    url = f"http://{served.host}{served.target}"
    with urlopen(Request(url, headers={"Origin": "https://ui.perfetto.dev"}), timeout=WAIT_S) as answer:
        assert answer.read() == DATA
        assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Content-Encoding" not in answer.headers
    assert served.ends()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(served.host.split(":")):
        pass


def test_nothing_else_is_served_and_asking_for_it_does_not_end_the_waiting(served: Served) -> None:
    served.path.with_name("secret").write_text("x")
    for target in (
        "/",
        "/secret",
        "/../secret",
        "//secret",
        f"{served.target}/",
        f"{served.target}?x",
        "/%2e%2e/secret",
    ):
        assert served.ask(target=target).status == 404
    assert served.ask("POST").status == 501
    assert served.ask(Host="evil.example").status == 403
    assert served.goes_on


def test_questions_before_the_request_are_answered_and_do_not_end_the_waiting(served: Served) -> None:
    answer = served.ask(
        "OPTIONS", Origin="https://ui.perfetto.dev", **{"Access-Control-Request-Private-Network": "true"}
    )
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    head = served.ask("HEAD")
    assert (head.status, int(head.headers["Content-Length"]), head.read()) == (200, len(DATA), b"")
    assert served.goes_on


def test_a_request_that_breaks_off_and_a_silent_connection_do_not_take_the_file_from_others(served: Served) -> None:
    place = (served.host.split(":")[0], int(served.host.split(":")[1]))
    with socket.create_connection(place), socket.create_connection(place) as broken:
        broken.sendall(f"GET {served.target} HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode())
        broken.recv(1000)
        broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        broken.close()
        assert served.ask().read() == DATA


def test_nobody_else_can_guess_the_address(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"x")
    one, other = Served(path), Served(path)
    assert one.target != other.target
    assert one.ask(target="/" + one.target.rpartition("/")[2]).status == 404
    for served in (one, other):
        served.ask().read()
        assert served.ends()


def test_a_file_that_is_gone_ends_the_waiting_and_is_told(tmp_path: Path) -> None:
    def gone(url: str) -> None:
        (tmp_path / "x").unlink()
        parts = urlsplit(url.partition("url=")[2])
        connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_S)
        connection.request("GET", parts.path)
        assert connection.getresponse().status == 410

    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(GpuProfError, match="cannot be read any more"):
        perfetto.serve_once(tmp_path / "x", gone, port=0, wait_s=WAIT_S)


def test_a_port_that_is_taken_is_told_with_the_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GpuProfError, match=rf"port {port} of 127.0.0.1 is in use.*Open trace file"):
            perfetto.serve_once(tmp_path / "x", lambda _: None, port=port)


def test_a_file_that_nobody_asks_for_is_not_served_for_ever(tmp_path: Path) -> None:
    with pytest.raises(GpuProfError, match=r"nothing requested x within 0\.2 s"):
        perfetto.serve_once(tmp_path / "x", lambda _: None, port=0, wait_s=0.2)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rank0.1.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    return path


def test_one_file_is_taken_and_no_other_output_of_it(trace: Path, refused: Callable[..., str]) -> None:
    assert "--perfetto must be given one file" in refused("trace", trace, trace, "--perfetto")
    assert "not be combined with --json" in refused("trace", trace, "--json", "--perfetto")


def test_the_command_writes_the_annotated_trace_says_both_ways_and_ends_on_ctrl_c(trace: Path) -> None:
    # A shell's background jobs ignore Ctrl-C, and what they start does, too.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from lightning_gpuprof.cli import perfetto; perfetto.serve_once.__kwdefaults__['port'] = 0; "
    code += "from lightning_gpuprof.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "trace", str(trace), "--perfetto"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines[0].startswith("Open https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
        annotated = trace.with_name("rank0.1.annotated.json.gz")
        assert f"load {annotated} in chrome://tracing" in lines[2]
        assert "gpuprof" in {
            event.get("cat") for event in json.loads(gzip.decompress(annotated.read_bytes()))["traceEvents"]
        }
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130
        assert "Traceback" not in process.stderr.read()
