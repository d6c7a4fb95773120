"""The installed package plotly flows in, its script as a file flows out."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def plotly_script() -> bytes:
    """Plotly's script, 5 MB, read from the package without importing that, which takes most of a second."""
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return script.read_bytes()
    from plotly.offline import get_plotlyjs  # in case that it is kept elsewhere one day

    return str(get_plotlyjs()).encode()
