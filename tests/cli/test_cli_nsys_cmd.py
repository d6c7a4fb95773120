"""``gpuprof nsys-cmd``: the command lines for NVIDIA's profilers."""

import json
import shlex
from pathlib import Path

import pytest

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.trace.kernels import MeasuredKernel
from lightning_gpuprof.trace.nsight_compute import read_ncu

TRAINING = ["python", "train.py", "--trainer.max_epochs", "3", "--name=a b"]


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Words of the command as a shell would see them: comments do not count."""
    assert main(["nsys-cmd", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if not line.startswith("#")]
    assert len(commands) == 1
    return shlex.split(commands[0])


def test_nsight_systems_records_every_window_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    command = printed(["--", *TRAINING], capsys)
    assert command[:2] == ["nsys", "profile"]
    assert "--capture-range=cudaProfilerApi" in command
    assert "--capture-range-end=repeat" in command
    assert "--trace=cuda,nvtx,osrt,cudnn,cublas" in command
    assert command[-len(TRAINING) :] == TRAINING


def test_operators_are_marked_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--pytorch=autograd-shapes-nvtx" in printed(["--operators", "--", *TRAINING], capsys)
    assert not [word for word in printed(["--", *TRAINING], capsys) if "autograd" in word]


def test_options_of_the_training_are_not_ours(capsys: pytest.CaptureFixture[str]) -> None:
    training = ["python", "train.py", "--json", "--tool", "hammer", "--", "--windows", "x"]
    assert printed(["--", *training], capsys)[-len(training) :] == training


def test_the_number_of_windows_and_the_name_are_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    command = printed(["--windows", "2", "--output", "mine", "--", *TRAINING], capsys)
    assert "--capture-range-end=repeat:2" in command
    assert "--output=mine" in command


def test_nsight_compute_waits_for_the_windows(capsys: pytest.CaptureFixture[str]) -> None:
    command = printed(["--tool", "ncu", "--", *TRAINING], capsys)
    assert command[0] == "ncu"
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert "--nvtx" in command
    assert command[-len(TRAINING) :] == TRAINING


def test_nsight_compute_measures_each_column_that_is_read_of_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = printed(["--tool", "ncu"], capsys)
    metrics = command[command.index("--metrics") + 1].split(",")
    assert {"l1tex__t_sector_hit_rate.pct", "lts__t_sector_hit_rate.pct"} <= set(metrics)
    units = ["us" if "time" in name else "byte" if "bytes" in name else "%" for name in metrics]
    table = tmp_path / "ncu.csv"
    rows = (["Kernel Name", *metrics], ["", *units], ["gemm", *("50" for _ in metrics)])
    table.write_text("".join(f"{','.join(row)}\n" for row in rows), encoding="utf-8")
    (kernel,) = read_ncu(table)
    assert kernel == MeasuredKernel(
        name="gemm",
        launches=1,
        duration_us=50,
        occupancy_ratio=0.5,
        l1_hit_ratio=0.5,
        l2_hit_ratio=0.5,
        dram_bytes=100,
        compute_throughput_ratio=0.5,
        memory_throughput_ratio=0.5,
    )


def test_without_a_training_there_is_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed([], capsys)[-2:] == ["python", "train.py"]


def test_notes_tell_how_to_choose_windows(capsys: pytest.CaptureFixture[str]) -> None:
    for tool in ("nsys", "ncu"):
        assert main(["nsys-cmd", "--tool", tool]) == 0
        notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
        assert any("windows=[(200, 205)]" in note for note in notes)
        assert any("GPUPROF=1" in note for note in notes)


def test_json_has_the_same_words(capsys: pytest.CaptureFixture[str]) -> None:
    command = printed(["--", *TRAINING], capsys)
    assert main(["nsys-cmd", "--json", "--", *TRAINING]) == 0
    assert json.loads(capsys.readouterr().out)["argv"] == command


@pytest.mark.parametrize("words", [["--windows", "0"], ["--tool", "ncu", "--windows", "2"]])
def test_numbers_of_windows_that_cannot_work_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nsys-cmd", *words]) == 2
    assert "--windows must " in capsys.readouterr().err


def test_nsight_compute_measures_the_heaviest_kernels_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        {"cat": "user_annotation", "name": f"ProfilerStep#{at}", "pid": 1, "tid": 1, "ts": at * 1000, "dur": 900}
        for at in (1, 2)
    ]
    kernels = [
        {"cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at, "dur": us}
        for at, (name, us) in enumerate(
            2 * [("void at::gemm<4>(int)", 90), ("void scale(int)", 80), *((f"k{i}", 9 - i) for i in range(4))]
        )
    ]
    (tmp_path / "rank0.1.pt.trace.json").write_text(
        json.dumps({"traceEvents": [{"ph": "X", **one} for one in (*steps, *kernels)]})
    )
    command = printed(
        ["--tool", "ncu", "--kernels-of", str(tmp_path), "--nvtx-range", "forward", "--", *TRAINING], capsys
    )
    assert command[command.index("--kernel-name") + 1] == "regex:^(gemm|scale|k0|k1|k2)$"
    assert command[command.index("--launch-skip") + 1] == command[command.index("--launch-count") + 1] == "5"
    assert command[command.index("--nvtx-include") + 1] == "forward/"
    assert command[command.index("--set") + 1] == "full"
    assert main(["nsys-cmd", "--kernels-of", str(tmp_path)]) == 2
    assert "--kernels-of must be left out for nsys" in capsys.readouterr().err
