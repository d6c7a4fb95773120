"""The same fits under TraceML, in the environment that ``traceml_environment.py`` makes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A launcher of this file does not put its folder there.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from traceml_environment import launcher

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 240


@dataclass(frozen=True, kw_only=True)
class TraceMlSaid:
    """What TraceML concludes."""

    status: str
    words: str


def why_not() -> str:
    """Why TraceML cannot run here; empty if it can."""
    if launcher().is_file():
        return ""
    return "TraceML needs its own environment: python benchmarks/traceml_environment.py"


def ask_traceml(name: str, seed: int, folder: Path) -> TraceMlSaid:
    """Run a case under TraceML's launcher, without this project's callback.

    Args:
        name: Of the case.
        seed: As for our own run.
        folder: For its files.
    """
    order = json.dumps({"name": name, "seed": seed, "folder": str(folder)})
    logs = folder / "logs"
    environ = {key: value for key, value in os.environ.items() if key != "GPUPROF"}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "benchmarks", ROOT / "tests" / "support")))
    finished = subprocess.run(
        [str(launcher()), "run", "--logs-dir", str(logs), str(Path(__file__)), "--args", order],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    found = sorted(logs.rglob("final_summary.json"))
    if not found:
        raise RuntimeError(f"TraceML wrote no summary ({finished.returncode}): {finished.stderr[-1500:]}")
    return conclusion(json.loads(found[-1].read_text(encoding="utf-8")))


def conclusion(summary: dict[str, Any]) -> TraceMlSaid:
    """Its primary diagnosis, in its own words, with what it advises."""
    primary = summary["primary_diagnosis"]
    return TraceMlSaid(status=str(primary["status"]), words=f"{primary['summary']} {primary['action']}")


def main() -> int:
    """Run the case that the first argument names."""
    from truths.cases import CASES
    from truths.fits import Fit

    order = json.loads(sys.argv[1])
    (source,) = [case.source for case in CASES if case.name == order["name"]]
    if not isinstance(source, Fit):
        raise TypeError(f"{order['name']} is no fit")
    source.setup(Path(order["folder"]), order["seed"]).fit([])
    return 0


if __name__ == "__main__":
    sys.exit(main())
