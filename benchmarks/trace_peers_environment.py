"""Makes the environment in which other readers of traces are measured: HolisticTraceAnalysis and torch_tb_profiler.

    python benchmarks/trace_peers_environment.py

They are installed without their dependencies, of which their readers import a few only: JupyterLab, TensorBoard and
pytest are for other parts of them, and torch is not needed at all. The few are of this project's versions.

TraceLens is not in the package index: what is called ``tracelens`` there is another project, a test tool for agents.
Who wants it in the table installs it from its source into this environment and gets it in the next run::

    build/trace-peers/bin/pip install git+https://github.com/AMD-AGI/TraceLens
"""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "trace-peers"
PEERS = {"hta": "HolisticTraceAnalysis==0.5.0", "tb": "torch-tb-profiler==0.4.3"}
LIBRARIES = ("networkx", "numpy", "pandas", "plotly", "psutil", "PyYAML")
_READY = FOLDER / ".ready"
_CONTENT = "\n".join([*PEERS.values(), *LIBRARIES])


def python() -> Path:
    """The environment's interpreter."""
    return FOLDER / "bin" / "python"


def why_not(reader: str) -> str:
    """Why a peer cannot run here, or an empty string."""
    if reader in PEERS:
        ready = _READY.is_file() and _READY.read_text(encoding="utf-8") == _CONTENT
        return "" if ready else "it needs its environment: python benchmarks/trace_peers_environment.py"
    found = any((FOLDER / "lib").glob("python*/site-packages/TraceLens/TreePerf"))
    return "" if found else "it is not installed; benchmarks/trace_peers_environment.py says how to"


def make() -> None:
    """Make the environment, if it is not there."""
    if not why_not(next(iter(PEERS))):
        return
    venv.create(FOLDER, with_pip=True)
    pip = [str(python()), "-m", "pip", "install", "-qq"]
    versions = ["-c", str(ROOT / "constraints.txt")] if sys.version_info >= (3, 11) else []
    subprocess.run([*pip, *versions, *LIBRARIES], check=True)
    subprocess.run([*pip, "--no-deps", *PEERS.values()], check=True)
    _READY.write_text(_CONTENT, encoding="utf-8")


if __name__ == "__main__":
    make()
    print(f"{', '.join(PEERS.values())}: ready for {Path(sys.argv[0]).parent / 'trace.py'}")
    if lacking := why_not("tracelens"):
        print(f"TraceLens is left out: {lacking}")
