"""Which versions of Lightning and torch everything works with; prints a table, writes JSON.

    python benchmarks/versions.py                        # all pairs
    python benchmarks/versions.py --only torch-2.8.0     # one of them; the others in the file stay
    python benchmarks/versions.py --oldest               # the oldest Lightning with what is installed here; for CI

Each pair has an environment of its own in ``build/versions``, in which ``versions_probe.py`` runs. With the torch of
``constraints.txt`` Lightning is put in front of the packages of this environment. Another torch is installed anew, with
all that belongs to it, as a user would have it: a CUDA build of 3 to 5 GB, one at a time, removed afterwards. So is
``pytorch-lightning``, since what is to be seen is that it needs no ``lightning`` beside it.
"""

import argparse
import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import versions_probe
from paired import RESULTS, wide_console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "versions"
OLDEST = "2.4.0"
SETUPTOOLS = "setuptools<81"
"""Lightning before 2.6 imports ``pkg_resources``, which newer ones do not have, and does not say so to pip."""
TORCH = next(
    line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line.startswith("torch==")
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One pair of versions."""

    name: str
    lightning: str
    """What pip is asked for."""
    torch: str = TORCH

    @property
    def package(self) -> str:
        """The distribution that the training program imports."""
        return self.lightning.partition("==")[0]


PAIRS = (
    *(Pair(name=f"lightning-{v}", lightning=f"lightning=={v}") for v in (OLDEST, "2.5.0.post0", "2.5.6")),
    Pair(name="lightning-newest", lightning="lightning"),
    Pair(name=f"pytorch-lightning-{OLDEST}", lightning=f"pytorch-lightning=={OLDEST}"),
    Pair(name="pytorch-lightning-newest", lightning="pytorch-lightning"),
    Pair(name="torch-2.4.0", torch="torch==2.4.0", lightning=f"lightning=={OLDEST}"),
    Pair(name="torch-2.6.0", torch="torch==2.6.0", lightning="lightning==2.5.6"),
    Pair(name="torch-2.8.0", torch="torch==2.8.0", lightning="lightning==2.5.6"),
    Pair(name="torch-newest", torch="torch", lightning="lightning"),
)


def python(folder: Path) -> str:
    """The interpreter of an environment."""
    return str(folder / "bin" / "python")


def pip(folder: Path, *arguments: str) -> None:
    """Install into an environment.

    Raises:
        RuntimeError: With what pip says last.
    """
    command = [python(folder), "-m", "pip", "install", "-qq", "--no-cache-dir", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pip install {' '.join(arguments)}: {done.stderr.strip()[-500:]}")


def own_requirements() -> list[str]:
    """What this package asks for, without the two whose versions are given."""
    found = [r for r in metadata.requires("lightning-gpuprof") or () if "extra ==" not in r]
    return [r for r in found if not r.startswith(("torch>", "lightning>"))]


def install(pair: Pair) -> Path:
    """An environment with a pair, made anew; without the other name of Lightning, unless it brings that itself."""
    if pair.torch == TORCH and pair.package == "lightning":
        return in_front(FOLDER / pair.name, pair.lightning)
    folder = FOLDER / pair.name
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    pip(folder, pair.torch, pair.lightning, SETUPTOOLS, *own_requirements())
    pip(folder, "--no-deps", "-e", str(ROOT))
    return folder


def in_front(folder: Path, requirement: str) -> Path:
    """An environment with one distribution and, for all the rest, the packages of this one; kept."""
    ready = folder / ".ready"
    if not ready.is_file() or ready.read_text(encoding="utf-8") != requirement:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip(folder, "--no-deps", requirement, SETUPTOOLS)
        where = [python(folder), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
        # `addsitedir` also reads the .pth files there: this project itself is installed through one.
        shared = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (Path(site) / "shared.pth").write_text(shared, encoding="utf-8")
        ready.write_text(requirement, encoding="utf-8")
    return folder


def probe(folder: Path, package: str, parts: Sequence[str] = versions_probe.PARTS) -> dict[str, Any]:
    """What ``versions_probe.py`` finds in an environment."""
    command = [python(folder), versions_probe.__file__, "--package", package, "--parts", *parts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr[-1000:])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def tried(pair: Pair) -> dict[str, Any]:
    """A pair installed, looked at and removed."""
    try:
        return probe(install(pair), pair.package)
    except RuntimeError as error:
        return {"versions": {}, "told": [], "checks": dict.fromkeys(versions_probe.CHECKS, str(error))}
    finally:
        shutil.rmtree(FOLDER / pair.name, ignore_errors=True)


def table(found: dict[str, dict[str, Any]]) -> Table:
    """One row a pair."""
    made = Table(title="versions that everything works with")
    for title in ("Lightning", "torch", *versions_probe.CHECKS):
        made.add_column(title.replace("_", " "), no_wrap=title in ("Lightning", "torch"))
    for pair, one in found.items():
        versions = one["versions"]
        package = "pytorch-lightning" if pair.startswith("pytorch") else "lightning"
        checks = one["checks"]
        cells = [("no" if checks[name] else "yes") if name in checks else "-" for name in versions_probe.CHECKS]
        lightning = f"{package} {versions.get(package, '?')}"
        made.add_row(lightning, versions.get("torch", pair), *cells)
    return made


def wrong(found: dict[str, dict[str, Any]]) -> list[str]:
    """A sentence for each thing that does not work."""
    return [f"{name}: {check}: {why}" for name, one in found.items() for check, why in one["checks"].items() if why]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if something does not work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [pair.name for pair in PAIRS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PAIR", help=", ".join(names))
    parser.add_argument("--oldest", action="store_true", help="only the oldest Lightning, with what is installed here")
    parser.add_argument("--json", type=Path, default=RESULTS / "versions.json")
    options = parser.parse_args(arguments)
    if options.oldest:
        found = {"oldest": probe(install(PAIRS[0]), PAIRS[0].package, ("fit", "ranks"))}
    else:
        kept = json.loads(options.json.read_text(encoding="utf-8"))["results"] if options.json.is_file() else {}
        new: dict[str, dict[str, Any]] = {}
        for pair in (pair for pair in PAIRS if pair.name in options.only):
            print(f"{pair.name}: {pair.lightning} with {pair.torch}", flush=True)
            new[pair.name] = tried(pair)
            found = {name: one for name in names if (one := new.get(name) or kept.get(name))}
            text = json.dumps({"benchmark": "versions", "results": found}, indent=1)
            options.json.write_text(f"{text}\n", encoding="utf-8")
    wide_console().print(table(found))
    print("\n".join(wrong(found)))
    return int(bool(wrong(found)))


if __name__ == "__main__":
    sys.exit(main())
