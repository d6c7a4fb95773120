"""HTTP responses: of the right type, never sniffed, and harmless if opened by themselves."""

import gzip
from functools import lru_cache

import msgspec
from werkzeug.wrappers import Request, Response

from lightning_gpuprof.tensorboard_plugin.assets import Asset

_POLICY = "default-src 'none'; frame-ancestors 'none'"
_MIN_PACKED = 2_000


def data(request: Request, content: object, *, status: int = 200, version: str = "") -> Response:
    """JSON that no cache keeps.

    Args:
        request: What is answered.
        content: Anything that msgspec encodes.
        status: HTTP status.
        version: Of the content; empty if it has none.

    Returns:
        The version is its ETag; it is gzipped if it is long and the client takes that. A client that has this version
        already gets a 304.
    """
    if version and request.if_none_match.contains(version):
        return not_modified(version)
    body = msgspec.json.encode(content)
    packed = _packs(request) and len(body) >= _MIN_PACKED
    response = Response(gzip.compress(body, 1, mtime=0) if packed else body, status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return _finished(response, version, packed=packed)


def not_modified(version: str) -> Response:
    """304: the client has it."""
    response = Response(status=304, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return _finished(response, version, packed=False)


def refusal(request: Request, status: int, why: str) -> Response:
    """What is wrong with a request, or why there is nothing to show.

    Args:
        request: What is answered.
        status: 4xx.
        why: A sentence for people.

    Returns:
        ``{"error": why}`` with that status, which no cache keeps.
    """
    return data(request, {"error": why}, status=status)


def asset(request: Request, file: Asset) -> Response:
    """A file of the tab; browsers keep it and ask whether it is still the same.

    Args:
        request: What the browser asked for.
        file: The file.

    Returns:
        Its version is the ETag; a 304 if the browser has it, gzipped if the browser takes that.
    """
    if request.if_none_match.contains(file.version):
        response = Response(status=304, content_type=file.content_type)
        packed = False
    else:
        packed = _packs(request)
        response = Response(_packed(file) if packed else file.data, content_type=file.content_type)
    response.headers["Cache-Control"] = "private, no-cache"
    return _finished(response, file.version, packed=packed)


@lru_cache(maxsize=16)
def _packed(file: Asset) -> bytes:
    return gzip.compress(file.data, 1, mtime=0)


def _packs(request: Request) -> bool:
    return request.accept_encodings.best_match(["gzip"]) is not None


def _finished(response: Response, version: str, *, packed: bool) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Vary"] = "Accept-Encoding"
    if packed:
        response.headers["Content-Encoding"] = "gzip"
    if version:
        response.set_etag(version)
    return response
