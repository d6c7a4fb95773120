"""What can be tried: names and values of ``--arm``, and the advice of findings."""

import msgspec
import pytest
from empty_structs import empty

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Finding, Gain
from lightning_gpuprof.trial.arms import NAMES, NEEDS_A_HUMAN, advised, asked, changes_numbers, loader_arms, title


def finding(rule: str, *, change: Change | None, speedup: float | None = None) -> Finding:
    """Of a report."""
    return empty(
        Finding,
        rule=rule,
        severity="warning",
        summary="It is slow.",
        advice=f"Advice of {rule}.",
        change=change,
        gain=None if speedup is None else Gain(saved_ms_per_step=1.0, speedup_max=speedup),
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("num_workers=1,2,4", ["num_workers=1", "num_workers=2", "num_workers=4"]),
        ("num_workers= 2 ", ["num_workers=2"]),
        ("precision=bf16-mixed", ["precision=bf16-mixed"]),
        ("pin_memory=true,False", ["pin_memory=True", "pin_memory=False"]),
        ("gradient_clip_val=0.5", ["gradient_clip_val=0.5"]),
        ("without=LearningRateMonitor,TensorBoardLogger", ["without=LearningRateMonitor", "without=TensorBoardLogger"]),
        ("compile=True", ["compile=True"]),
        ("batch_size=64,128", ["batch_size=64", "batch_size=128"]),
        ("strategy=ddp,fsdp", ["strategy=ddp", "strategy=fsdp"]),
        ("env:OMP_NUM_THREADS=1,2", ["OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"]),
        ("env:my_flag=a=b", ["my_flag=a=b"]),
        ("env:CUDA_LAUNCH_BLOCKING=", ["CUDA_LAUNCH_BLOCKING unset"]),
        ("env:PYTORCH_CUDA_ALLOC_CONF=a:1,b:2", ["PYTORCH_CUDA_ALLOC_CONF=a:1,b:2"]),
    ],
)
def test_each_value_is_an_arm(text: str, names: list[str]) -> None:
    assert [arm.name for arm in asked([text])] == names


def test_every_name_makes_a_change() -> None:
    values = {
        "precision": "16-mixed",
        "matmul_precision": "high",
        "enable_progress_bar": "False",
        "logger": "False",
        "without": "Timer",
        "strategy": "ddp",
    }
    counts = ("num_workers", "prefetch_factor", "log_every_n_steps", "gradient_clip_val", "num_threads", "gc_threshold")
    counts += ("batch_size", "devices", "accumulate_grad_batches")
    for name in NAMES:
        value = values.get(name, "3" if name in counts else "True")
        [arm] = asked([f"{name}={value}"])
        [change] = arm.changes
        assert change.added or change.removed, name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_worker=2", "Did you mean num_workers"),
        ("xyz=2", "There are "),
        ("", "There are "),
        ("=2", "There are "),
        ("num_workers", "num_workers=2,4"),
        ("num_workers=", "num_workers=2,4"),
        ("without=", "without=LearningRateMonitor"),
        ("compile=", "compile=True"),
        ("num_workers=-1", "from 0 to 256, got -1"),
        ("num_workers=1000000", "from 0 to 256, got 1000000"),
        ("num_workers=2,", "got ''"),
        ("num_workers=True", "got True"),
        ("num_workers=1.5", "got 1.5"),
        ("num_workers=two", "got 'two'"),
        ("num_workers=[1]", "got [1]"),
        ("prefetch_factor=0", "from 1 to"),
        ("pin_memory=1", "be True or False"),
        ("precision=8", "16-mixed, bf16-mixed, 16-true, bf16-true, 32-true"),
        ("logger=True", "there is nothing else to try"),
        ("gradient_clip_val=-1", "be a number above 0"),
        ("gradient_clip_val=nan", "be a number above 0"),
        ("batch_size=0", "from 1 to"),
        ("strategy=", "strategy=ddp"),
        ("strategy=DDPStrategy()", "be the name of a strategy"),
        ("OMP_NUM_THREADS=1", "Did you mean env:OMP_NUM_THREADS"),
        ("env:OMP_NUM_THREADS", "be env:NAME=VALUE"),
        ("env:=1", "be env:NAME=VALUE"),
        ("env:A B=1", "be env:NAME=VALUE"),
        ("env:GPUPROF_TRIAL=x", "is read by gpuprof itself"),
        ("without=os.system('x')", "be the class of a callback or logger"),
    ],
)
def test_what_cannot_be_tried_is_said_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ArgumentError) as error:
        asked([text])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_advice_that_is_a_setting_is_tried_and_the_rest_is_listed() -> None:
    workers = Change(call="DataLoader", arguments={"num_workers": 2})
    arms, left = advised(
        [
            finding("input-bound", change=workers, speedup=2.0),
            finding("slow-line", change=None, speedup=1.5),
            finding("single-process-loading", change=workers, speedup=3.0),
            finding("logging-overhead", change=Change(call="Trainer", arguments={"log_every_n_steps": 50})),
        ]
    )
    assert [arm.name for arm in arms] == ["num_workers=2", "log_every_n_steps=50"]
    assert arms[0].rules == ("input-bound", "single-process-loading")
    assert [arm.promised_speedup for arm in arms] == [3.0, None]
    assert [(one.rule, one.why, one.promised_speedup) for one in left] == [("slow-line", NEEDS_A_HUMAN, 1.5)]


def test_advice_that_is_not_tried_is_listed_by_its_finding_s_title() -> None:
    slow = msgspec.structs.replace(finding("slow-line", change=None), title="A line waits", advice="Four sentences.")
    assert [one.advice for one in advised([slow])[1]] == ["A line waits"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(call="DataLoader", arguments={"num_workers": 2, "pin_memory": True}), "num_workers=2, pin_memory=True"),
        (Change(call="torch.optim.AdamW", arguments={"fused": True}), "torch.optim.AdamW(fused=True)"),
        (Change(remove=("Timer(...)",)), "without Timer(...)"),
        (Change(add=("gc.freeze()  # at the start of fit",)), "gc.freeze() (at the start of fit)"),
        (
            Change(add=("if batch_idx % 80: return  # at the start of Audit.on_train_batch_end",)),
            "Audit.on_train_batch_end every 80 batches",
        ),
        (Change(add=("def on_train_start(self):", "    gc.freeze()")), "gc.freeze()"),
        (Change(), "no change"),
    ],
)
def test_a_change_has_a_title(change: Change, words: str) -> None:
    assert title(change) == words


@pytest.mark.parametrize(
    ("text", "differently"),
    [
        ("precision=bf16-mixed", True),
        ("matmul_precision=high", True),
        ("cudnn_tf32=True", True),
        ("gradient_clip_val=1.0", True),
        ("batch_size=8", True),
        ("devices=2", True),
        ("accumulate_grad_batches=2", True),
        ("env:NVIDIA_TF32_OVERRIDE=1", True),
        ("env:OMP_NUM_THREADS=1", False),
        ("strategy=ddp", False),
        ("num_workers=2", False),
        ("foreach=True", False),
        ("gc_freeze=True", False),
    ],
)
def test_it_is_known_what_changes_the_weights(text: str, differently: bool) -> None:
    [arm] = asked([text])
    assert changes_numbers(arm.changes[0]) is differently


@pytest.mark.parametrize("cpus", [1, 2, 7, 64])
def test_the_search_takes_no_more_workers_than_cpus(cpus: int) -> None:
    counts = [arm.changes[0].arguments["num_workers"] for arm in loader_arms(cpus)]
    assert counts == sorted(set(counts), key=counts.index)
    assert counts[0] == 0
    assert max(count for count in counts if isinstance(count, int)) <= cpus
    assert 1 in counts
