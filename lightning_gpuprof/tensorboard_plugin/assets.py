"""The files that the tab consists of, all from installed packages: name → content type and bytes."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

_SCRIPT = "text/javascript; charset=utf-8"
_STYLE = "text/css; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file as it is served."""

    content_type: str
    data: bytes
    version: str
    """Of the bytes."""


def _asset(content_type: str, data: bytes) -> Asset:
    return Asset(content_type=content_type, data=data, version=hashlib.sha256(data).hexdigest()[:20])


@cache
def plotly() -> Asset:
    """Plotly's script, from the installed package."""
    return _asset(_SCRIPT, _plotly_script())


def _plotly_script() -> bytes:
    """Plotly's script, 5 MB, read from the package without importing that, which takes most of a second."""
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return script.read_bytes()
    from plotly.offline import get_plotlyjs  # in case that it is kept elsewhere one day

    return str(get_plotlyjs()).encode()


@cache
def figures() -> Asset:
    """All scripts of the page, in one: that of figures in general, then those that add themselves to it."""
    web = files("lightning_gpuprof.sinks").joinpath("web")
    others = sorted(entry.name for entry in web.iterdir() if entry.name.endswith(".js") and entry.name != "figures.js")
    return _asset(_SCRIPT, b"\n".join(web.joinpath(name).read_bytes() for name in ("figures.js", *others)))


@cache
def _report_style() -> Asset:
    return _asset(_STYLE, files("lightning_gpuprof.sinks").joinpath("web", "report.css").read_bytes())


@cache
def _package_asset(name: str) -> Asset:
    kind = _STYLE if name.endswith(".css") else _SCRIPT
    return _asset(kind, files("lightning_gpuprof.tensorboard_plugin").joinpath("static", name).read_bytes())


def catalogue() -> Mapping[str, Callable[[], Asset]]:
    """All files by the name under which they are served; each is read when it is asked for first."""
    own = (entry.name for entry in files("lightning_gpuprof.tensorboard_plugin").joinpath("static").iterdir())
    found = {name: partial(_package_asset, name) for name in own if name.endswith((".js", ".css"))}
    return {**found, "plotly.js": plotly, "figures.js": figures, "report.css": _report_style}
