from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import sample_report

from lightning_gpuprof.model.report import StackRow
from lightning_gpuprof.sinks.stack_files import folded, speedscope_of
from lightning_gpuprof.sinks.window_figures.flame import flame_html, flame_of_steps

STEP, SLOW = "train.py:12 training_step", "model.py:3 slow; or so"
STACKS = (
    StackRow(phase="forward", frames=(STEP, SLOW), total_s=2.0),
    StackRow(phase="data_wait", frames=("data.py:5 <module>",), total_s=1.25),
    StackRow(phase="forward", frames=(STEP,), total_s=1.0),
    StackRow(phase="forward", frames=(), total_s=0.5),
    StackRow(phase="backward", frames=(), total_s=0.0),
)


def test_folded_text_has_each_stack_with_its_own_time() -> None:
    assert list(folded(STACKS)) == [
        "waiting for data;data.py:5 <module> 1250000",
        "forward 500000",
        f"forward;{STEP} 1000000",
        f"forward;{STEP};model.py:3 slow, or so 2000000",
    ]


@dataclass
class Opened:
    """A speedscope file, with samples as names."""

    stacks: dict[tuple[str, ...], float]
    frames: list[dict[str, Any]]

    @classmethod
    def of(cls, text: bytes) -> "Opened":
        file = msgspec.json.decode(text)
        (profile,) = file["profiles"]
        frames = file["shared"]["frames"]
        assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "microseconds", 0)
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
        samples = [tuple(frames[index]["name"] for index in sample) for sample in profile["samples"]]
        return cls(stacks=dict(zip(samples, profile["weights"], strict=True)), frames=frames)


def test_speedscope_has_the_same_stacks_with_files_and_lines() -> None:
    opened = Opened.of(msgspec.json.encode(speedscope_of(STACKS)))
    assert opened.stacks == {
        ("waiting for data", "<module>"): 1.25e6,
        ("forward",): 0.5e6,
        ("forward", "training_step"): 1e6,
        ("forward", "training_step", "slow; or so"): 2e6,
    }
    assert {"name": "training_step", "file": "train.py", "line": 12} in opened.frames
    assert {"name": "forward"} in opened.frames


def test_the_flame_graph_of_the_steps_has_a_stack_s_time_at_each_of_its_callers() -> None:
    flame = flame_of_steps(msgspec.structs.replace(sample_report.full_report(), stacks=STACKS))
    assert flame is not None
    assert flame.total_us == pytest.approx(4.75e6)
    assert flame.times_us["forward",] == pytest.approx(3.5e6)
    assert flame.times_us["forward", STEP] == pytest.approx(3e6)
    assert flame.times_us["forward", STEP, SLOW] == pytest.approx(2e6)
    assert "all steps by phase and line of yours" in flame_html(flame)
    assert flame_of_steps(msgspec.structs.replace(sample_report.full_report(), stacks=())) is None
