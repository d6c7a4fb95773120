"""Serves a trace file to Perfetto: once, to this machine only."""

import errno
import re
import secrets
import shutil
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.sinks.plain import visible

PERFETTO = "https://ui.perfetto.dev"
ADDRESS = "127.0.0.1"
PORT = 9001
"""The one port of this machine that Perfetto's page may ask: its own policy names it (see ``record_android_trace`` of
the Perfetto project, which serves traces in the same way)."""
WAIT_S = 600.0
"""So long the file waits for the browser to ask for it."""
STALLED_S = 30.0
"""A connection on which nothing moves for so long is dropped."""


def serve_once(path: Path, announce: Callable[[str], object], *, port: int = PORT, wait_s: float = WAIT_S) -> None:
    """Serve a trace until Perfetto has it.

    Only this file is served, only to this machine, and no other page than Perfetto's may read it.

    Args:
        path: The trace.
        announce: Gets the address to open, once the file is served.
        port: 0 takes a free one, which Perfetto's page may not ask.
        wait_s: Seconds to wait for a request that takes the whole file.

    Raises:
        GpuProfError: The port is taken, nobody asked for the file in time, or it is gone.
    """
    try:
        server = _Server(path, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise GpuProfError(
            f"port {port} of {ADDRESS} is in use, and Perfetto's page accepts no other. End what listens there "
            f'(trace_processor, another --perfetto), or choose "Open trace file" on {PERFETTO} and give {path}.'
        ) from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        announce(f"{PERFETTO}/#!/?url=http://{server.host}{server.target}")
        if not server.ended.wait(wait_s):
            raise GpuProfError(
                f"nothing requested {visible(path.name)} within {wait_s:g} s. Call again, or load {path} by hand."
            )
        if server.problem:
            raise GpuProfError(f"{server.problem}. Call again.")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """Threads, as browsers open connections that they do not use."""

    daemon_threads = True

    def __init__(self, path: Path, port: int) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.path = path
        self.host = f"{ADDRESS}:{self.server_address[1]}"
        # Other users of this machine cannot guess it. The page decodes the address before it asks for it.
        self.target = f"/{secrets.token_urlsafe(16)}/" + re.sub(r"[^A-Za-z0-9._-]", "_", path.name)
        self.ended = threading.Event()
        """Set once somebody got the whole file, or nobody can."""
        self.problem = ""
        """Why nobody can."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that breaks is asked for again by who wants the file."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = STALLED_S
    server_version = "gpuprof"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        try:
            file = self.server.path.open("rb")
        except OSError as error:
            self.server.problem = f"{visible(self.server.path.name)} cannot be read any more: {error.strerror}"
            self.server.ended.set()
            self.send_error(HTTPStatus.GONE)
            return
        with file:
            self._begin(HTTPStatus.OK, file.seek(0, 2))
            file.seek(0)
            shutil.copyfileobj(file, self.wfile)
        self.wfile.flush()
        self.server.ended.set()

    def do_HEAD(self) -> None:
        if self._is_allowed():
            self._begin(HTTPStatus.OK, self.server.path.stat().st_size)

    def do_OPTIONS(self) -> None:
        """What browsers ask before a page from outside may ask this machine."""
        if self._is_allowed():
            self._begin(HTTPStatus.NO_CONTENT, 0)

    def _is_allowed(self) -> bool:
        # a page elsewhere whose name resolves to this machine sends its own name as host
        if self.headers.get("Host") != self.server.host:
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path != self.server.target:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            return True
        return False

    def _begin(self, status: HTTPStatus, length: int) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", PERFETTO)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are nobody's interest."""
