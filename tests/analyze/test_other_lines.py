"""Files of line_profiler and Scalene, whole, cut and hostile."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuprof.analyze.other_lines import read_lines
from lightning_gpuprof.errors import ReportError

SCALENE = {
    "elapsed_time_sec": 10.0,
    "files": {
        "/home/me/train.py": {
            "lines": [
                {"lineno": 3, "line": "x = f()\n", "n_cpu_percent_python": 30.0, "n_cpu_percent_c": 10.0},
                {"lineno": 4, "line": "y = 1\n"},
                {"lineno": 5, "line": "z = []\n", "n_malloc_mb": 2.0, "n_sys_percent": 5.0},
            ]
        },
        "/home/me/idle.py": {"lines": []},
    },
}


def test_scalene_has_percents_of_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(SCALENE))
    (found,) = read_lines(path)
    assert (found.file, found.by, found.total_s) == ("/home/me/train.py", "Scalene", pytest.approx(4.5))
    first, second = found.lines
    assert (first.line, first.total_s, first.python_ratio, first.code) == (3, 4.0, 0.75, "x = f()")
    assert (second.line, second.memory_bytes, second.python_ratio) == (5, 2 << 20, 0.0)


def test_line_profiler_reads_back_what_it_wrote(tmp_path: Path) -> None:
    line_profiler = pytest.importorskip("line_profiler")

    def work() -> int:
        return sum(range(1000))

    profiler = line_profiler.LineProfiler()
    profiler(work)()
    path = tmp_path / "script.py.lprof"
    profiler.dump_stats(str(path))
    (found,) = read_lines(path)
    assert found.name.endswith("work")
    assert [line.hits for line in found.lines] == [1]
    assert found.lines[0].total_s > 0


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch harmed",)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no profile",
        b"{",
        b'{"files": 3}',
        pickle.dumps(Hostile()),
        pickle.dumps({"timings": {}}),
        pickle.dumps(SCALENE)[:40],
    ],
)
def test_other_files_are_refused_and_nothing_is_executed(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ReportError, match=r"is (not a line profile, or cut short|empty)"):
        read_lines(path)
    assert not (tmp_path / "harmed").exists()


def test_files_that_are_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="No such file"):
        read_lines(tmp_path / "none")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(ReportError, match="300 MiB: too large"):
        read_lines(large)
