"""Makes the environment in which TraceML is measured: this one's packages, and TraceML in a folder of its own.

    python benchmarks/traceml_environment.py

TraceML is installed without its dependencies, all of which this project has as well, so that both are measured with
the same torch and lightning, and the project's environment stays as it is.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "build" / "traceml"
REQUIREMENT = "traceml-ai==0.5.0"


def python() -> Path:
    """The environment's interpreter."""
    return FOLDER / "bin" / "python"


def launcher() -> Path:
    """TraceML's command."""
    return FOLDER / "bin" / "traceml"


def make() -> None:
    """Make the environment, if it is not there."""
    if launcher().is_file():
        return
    venv.create(FOLDER, with_pip=True)
    found = subprocess.run(
        [str(python()), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    # `addsitedir` also reads the .pth files there: this project itself is installed through one.
    shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(found.stdout.strip()) / "shared.pth").write_text(shared, encoding="utf-8")
    subprocess.run([str(python()), "-m", "pip", "install", "-qq", "--no-deps", REQUIREMENT], check=True)


if __name__ == "__main__":
    make()
    print(f"{REQUIREMENT} is ready for: {Path(sys.argv[0]).parent / 'overhead.py'} --variants traceml")
