"""Each switch is on while its arm runs, and afterwards everything is as it was."""

import copy
import gc
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import LambdaCallback, LearningRateMonitor, RichProgressBar, TQDMProgressBar
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.trial import AROUND, Arm
from lightning_gpuprof.trial.arms import asked
from lightning_gpuprof.trial.schedule import CEILINGS
from lightning_gpuprof.trial.switches import switched


class Model(BoringModel):
    """With an optimizer that has a state."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.001)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """After a fit of two steps, with everything that it had."""
    found = Trainer(
        max_steps=2,
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=CSVLogger(tmp_path),
        callbacks=[LearningRateMonitor(), TQDMProgressBar(refresh_rate=7)],
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    found.fit(Model())
    gc.unfreeze()  # as in a user's program, where `gc.freeze()` changes something
    yield found
    gc.freeze()


def state(trainer: Trainer) -> dict[str, Any]:
    """All that a switch can change."""
    [optimizer] = trainer.optimizers
    module = trainer.lightning_module
    bar = trainer.progress_bar_callback
    return {
        "threads": torch.get_num_threads(),
        "matmul": torch.get_float32_matmul_precision(),
        "anomaly": torch.is_anomaly_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0, gc.collect),
        "cache": torch.cuda.empty_cache,
        "trainer": {name: value for name, value in vars(trainer).items() if name != "strategy"},
        "callbacks": [(callback, sorted(vars(callback))) for callback in trainer.callbacks],
        "loggers": list(trainer.loggers),
        "precision": trainer.strategy.precision_plugin,
        "strategy": sorted(vars(trainer.strategy)),
        "bar": None if bar is None else dict(vars(bar)),
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "steps": [values["step"].device.type for values in optimizer.state.values()],
        "moments": [float(values["exp_avg"].sum()) for values in optimizer.state.values()],
        "module": sorted(vars(module)),
        "formats": [parameter.stride() for parameter in module.parameters()],
    }


def changes(change: Change) -> Arm:
    """An arm of one change."""
    return Arm(name="arm", changes=(change,))


CHANGING = [
    *asked(["num_threads=3", "matmul_precision=medium", "detect_anomaly=True", "benchmark=True", "cudnn_tf32=False"]),
    *asked(["log_every_n_steps=7", "gradient_clip_val=0.5", "precision=bf16-mixed", "enable_progress_bar=False"]),
    *asked(["logger=False", "fused=True", "foreach=False", "gc_freeze=True", "gc_disable=True", "gc_threshold=77"]),
    *asked(["without=LearningRateMonitor", "without=CSVLogger", "compile=True"]),
    changes(Change(add=("def on_train_start(self):", "    gc.set_threshold(10 * gc.get_threshold()[0])"))),
    changes(Change(remove=("gc.collect()",))),
    changes(Change(add=("x = x.to(memory_format=torch.channels_last)",))),
    changes(Change(add=("if batch_idx % 9: return  # at the start of LearningRateMonitor.on_train_batch_start",))),
    changes(Change(add=("if self.global_step % 9: return  # at the start of Model.on_before_zero_grad",))),
    changes(Change(remove=("torch.cuda.empty_cache()",))),
    changes(Change(add=("torch.backends.cuda.enable_flash_sdp(False)",))),
    changes(Change(call="TQDMProgressBar", arguments={"refresh_rate": 50})),
    changes(Change(call="torch.optim.AdamW", arguments={"fused": True})),
    changes(
        Change(remove=("torch.backends.cudnn.allow_tf32 = True",), add=("torch.backends.cudnn.allow_tf32 = False",))
    ),
    Arm(name="both", changes=tuple(change for arm in asked(["num_threads=2", "fused=True"]) for change in arm.changes)),
]


@pytest.mark.parametrize("arm", CHANGING, ids=lambda arm: f"{arm.name}-{(*arm.changes[0].add, *arm.changes[0].remove)}")
def test_it_changes_something_and_takes_it_back(trainer: Trainer, arm: Arm) -> None:
    before = state(trainer)
    switches = switched(arm, trainer).switches
    assert switches
    assert state(trainer) == before, "nothing changes before it is on"
    for _ in range(2):
        with ExitStack() as undo:
            for switch in switches:
                undo.callback(switch())
            assert state(trainer) != before
        assert state(trainer) == before


def test_nothing_around_the_model_is_silent_and_comes_back(trainer: Trainer) -> None:
    [ceiling] = [arm for arm in CEILINGS if arm.name == AROUND]
    before = state(trainer)
    with ExitStack() as undo:
        for switch in switched(ceiling, trainer).switches:
            undo.callback(switch())
        assert trainer.loggers == []
        assert [type(one).__name__ for one in trainer.callbacks] == ["TQDMProgressBar"]
        trainer.lightning_module.log("loss", 1.0)  # outside a step, Lightning would raise
    assert state(trainer) == before


def test_without_a_progress_bar_nothing_is_drawn_after_a_batch(tmp_path: Path) -> None:
    bar = RichProgressBar(console_kwargs={"file": io.StringIO()})
    shown: list[float] = []

    def in_a_fit(trainer: Trainer, *_: object) -> None:
        [arm] = asked(["enable_progress_bar=False"])
        with ExitStack() as undo:
            for switch in switched(arm, trainer).switches:
                undo.callback(switch())
            bar.on_train_batch_end(trainer, trainer.lightning_module, None, None, 6)
            shown.extend(task.completed for task in bar.progress.tasks)
        bar.on_train_batch_end(trainer, trainer.lightning_module, None, None, 6)
        shown.extend(task.completed for task in bar.progress.tasks)

    fit = Trainer(
        **{"max_steps": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False},
        **{"default_root_dir": tmp_path, "enable_model_summary": False, "limit_val_batches": 0},
        callbacks=[bar, LambdaCallback(on_train_batch_start=in_a_fit)],
    )
    fit.fit(Model())
    assert shown == [0, 7]


def test_the_optimizer_goes_on_with_its_moments(trainer: Trainer) -> None:
    [optimizer] = trainer.optimizers
    moments = copy.deepcopy(optimizer.state_dict()["state"])
    [switch] = switched(asked(["fused=True"])[0], trainer).switches
    undo = switch()
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    undo()
    optimizer.step()
    assert [float(one["step"]) for one in optimizer.state.values()] == [
        float(one["step"]) + 2 for one in moments.values()
    ]


def test_a_loader_changes_by_its_arguments_alone(trainer: Trainer) -> None:
    arm = changes(Change(call="DataLoader", arguments={"num_workers": 2}, add=("torch.set_num_threads(1)",)))
    found = switched(arm, trainer)
    assert (found.loader, len(found.switches)) == ({"num_workers": 2}, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(call="Trainer", arguments={"strategy": "fsdp"}), "read when the trainer is made"),
        (Change(call="Trainer", arguments={"num_sanity_val_steps": 0}), "validation is not run"),
        (Change(call="Trainer", arguments={"precision": "bf16-true"}), "converts the weights"),
        (Change(call="ModelCheckpoint", arguments={"every_n_epochs": 2}), "a trial writes none"),
        (Change(call="TQDMProgressBar", arguments={"colour": 1}), "colour of TQDMProgressBar cannot"),
        (Change(call="RichProgressBar", arguments={"refresh_rate": 1}), "there is no RichProgressBar"),
        (Change(call="torch.optim.AdamW", arguments={"lr": 1}), "needs another optimizer"),
        (Change(add=("export PYTORCH_CUDA_ALLOC_CONF=x",)), "PYTORCH_CUDA_ALLOC_CONF=x is read when the process"),
        (Change(remove=("CUDA_LAUNCH_BLOCKING=1",)), "CUDA_LAUNCH_BLOCKING is read when the process starts"),
        (Change(remove=('Trainer(..., strategy="ddp")',)), "read when the trainer is made"),
        (Change(add=("DDPStrategy(gradient_as_bucket_view=True)",)), "read when the trainer is made"),
        (Change(remove=("Timer(...)",)), "there are CSVLogger, LearningRateMonitor, TQDMProgressBar"),
        (Change(remove=("loss.item()",)), "a line of your code has to go"),
        (Change(add=("for a in b:",)), "your code has to change"),
        (Change(add=("x = y",)), "your code has to change"),
        (Change(call="nn.Conv2d", arguments={"bias": False}), "your code has to change"),
        (Change(call="DDPStrategy", arguments={"bucket_cap_mb": 25}), "DDPStrategy is made before the training"),
        (
            Change(add=("if batch_idx % 9: return  # at the start of Own.on_validation_batch_end",)),
            "on_validation_batch_end does not run in a trial",
        ),
    ],
)
def test_what_has_no_switch_says_why(trainer: Trainer, change: Change, words: str) -> None:
    before = state(trainer)
    with pytest.raises(TrialError) as error:
        switched(changes(change), trainer)
    assert words in str(error.value)
    assert state(trainer) == before


def test_images_of_a_batch_can_be_in_channels_last(trainer: Trainer) -> None:
    both = ("self.model.to(memory_format=torch.channels_last)", "x = x.to(memory_format=torch.channels_last)")
    model, batch = switched(changes(Change(add=both)), trainer).switches
    images, labels = torch.ones(2, 3, 4, 4), torch.ones(2)
    undo = batch()
    found = trainer.strategy.batch_to_device([images, labels])
    assert found[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found[0], images)
    assert found[1] is labels
    undo()
    assert trainer.strategy.batch_to_device([images, labels])[0] is images
    model()()


def test_an_optimizer_without_such_a_way_says_so(trainer: Trainer) -> None:
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})

    trainer.strategy.optimizers = [Own(trainer.lightning_module.parameters())]
    with pytest.raises(TrialError, match="Own has no fused"):
        switched(asked(["fused=True"])[0], trainer)


def test_a_hook_that_is_to_run_rarely_runs_in_one_of_so_many_steps(trainer: Trainer) -> None:
    ran: list[int] = []

    class Counts(LambdaCallback):
        def on_train_batch_end(self, *args: Any) -> None:
            ran.append(args[-1])

    trainer.callbacks.append(Counts())
    line = "if batch_idx % 3: return  # at the start of Counts.on_train_batch_end"
    [switch] = switched(changes(Change(add=(line,))), trainer).switches
    for block in range(2):
        undo = switch()
        for step in range(4):
            trainer.callbacks[-1].on_train_batch_end(trainer, None, None, None, 4 * block + step)
        undo()
    assert ran == [0, 3, 6], "blocks that are shorter than that are one row of steps"
    trainer.callbacks[-1].on_train_batch_end(trainer, None, None, None, 8)
    assert ran[-1] == 8
    with pytest.raises(TrialError, match=r"there is no Other\.on_train_batch_end"):
        switched(changes(Change(add=(line.replace("Counts", "Other"),))), trainer)
