"""YAMLs of LightningCLI: the setting is changed in the text, and the program that reads it is built with it."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from patching_cases import COMPILE, FUSED, KEPT, MATMUL, NO_STATS, RARER, REFRESH, THINGS, WORKERS

from lightning_gpuprof.cli.patching.configuration import Configuration
from lightning_gpuprof.cli.patching.patch import apply, patch
from lightning_gpuprof.cli.patching.pieces import NotPlacedError
from lightning_gpuprof.errors import PatchError
from lightning_gpuprof.model.change import Change

CLI = """\
from lightning.pytorch import LightningDataModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader
from things import Net, data


class Data(LightningDataModule):
    def __init__(self, num_workers: int = 0, persistent_workers: bool = False, batch: int = 4):
        super().__init__()
        self.save_hyperparameters()
        self.num_workers = num_workers

    def train_dataloader(self):
        return DataLoader(
            data,
            batch_size=self.hparams.batch,
            num_workers=self.num_workers,
            persistent_workers=self.hparams["persistent_workers"],
        )


class Faster(Data):
    pass


def main(args=None):
    return LightningCLI(Net, Data, args=args, run=False, save_config_callback=None, subclass_mode_data=SUBCLASSES)


SUBCLASSES = False
if __name__ == "__main__":
    main()
"""
YAML = """\
# the settings of July
trainer:
  accelerator: cpu
  log_every_n_steps: 50   # often enough
  logger: false
  callbacks:
    # to see the rate
    - class_path: lightning.pytorch.callbacks.LearningRateMonitor
      init_args:
        logging_interval: 'step'  # in full
    - class_path: DeviceStatsMonitor
  max_epochs: 1
data:
  batch: 4
  num_workers: 0  # none yet

# the end
"""


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Patches ``config.yaml`` and ``train.py``, and builds what they describe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "things.py").write_text(THINGS)

    def build(text: str, *changes: Change, script: str = CLI) -> SimpleNamespace:
        for name in ("things", "train"):
            sys.modules.pop(name, None)
        Path("train.py").write_text(script)
        Path("config.yaml").write_bytes(text.encode())
        made = patch(changes, sources=[Path("train.py")], config=Path("config.yaml"))
        apply(made)
        assert patch(changes, sources=[Path("train.py")], config=Path("config.yaml")).diff == ""
        import train

        cli = train.main(["--config", "config.yaml"])
        loader = cli.datamodule.train_dataloader()
        new = Path("config.yaml").read_bytes().decode()
        return SimpleNamespace(made=made, cli=cli, trainer=cli.trainer, loader=loader, text=new)

    yield build
    for name in ("things", "train"):
        sys.modules.pop(name, None)


def test_what_the_data_class_takes_is_set_in_the_yaml(built) -> None:
    got = built(YAML, KEPT)
    assert got.text == YAML.replace(
        "num_workers: 0  # none yet\n", "num_workers: 2  # none yet\n  persistent_workers: true\n"
    )
    assert (got.loader.num_workers, got.loader.persistent_workers) == (2, True)
    assert [file.path.name for file in got.made.files] == ["config.yaml"]


def test_attributes_that_are_set_together_are_followed_one_by_one(built) -> None:
    together = CLI.replace("self.num_workers = num_workers", "self.batch, self.num_workers = batch, num_workers")
    got = built(YAML, KEPT, script=together)
    assert "  num_workers: 2  # none yet\n" in got.text
    assert [file.path.name for file in got.made.files] == ["config.yaml"]


def test_what_it_does_not_take_is_set_where_the_loader_is_built(built) -> None:
    change = Change(call="DataLoader", arguments={"num_workers": 2, "prefetch_factor": 4, "batch_size": 2})
    got = built(YAML, change)
    assert "  batch: 2\n  num_workers: 2  # none yet\n" in got.text
    assert "        prefetch_factor=4,\n    )" in textwrap.dedent(Path("train.py").read_text()).replace(
        "        )", "    )"
    )
    assert (got.loader.num_workers, got.loader.prefetch_factor, got.loader.batch_size) == (2, 4, 2)


def test_a_section_that_is_not_there_is_added(built) -> None:
    got = built("trainer:\n  accelerator: cpu\n  logger: false", WORKERS)
    assert got.text == "trainer:\n  accelerator: cpu\n  logger: false\ndata:\n  num_workers: 2\n"
    assert got.loader.num_workers == 2


def test_a_data_class_that_the_yaml_names_has_init_args(built) -> None:
    text = "trainer: {accelerator: cpu, logger: false}\ndata:\n  class_path: train.Faster\n"
    got = built(text, KEPT, RARER, script=CLI.replace("SUBCLASSES = False", "SUBCLASSES = True"))
    assert got.text == (
        "trainer: {accelerator: cpu, logger: false, log_every_n_steps: 100}\n"
        "data:\n  class_path: train.Faster\n  init_args:\n    num_workers: 2\n    persistent_workers: true\n"
    )
    assert (type(got.cli.datamodule).__name__, got.loader.num_workers) == ("Faster", 2)
    assert got.trainer.log_every_n_steps == 100


def test_arguments_of_the_trainer_and_of_callbacks(built) -> None:
    monitor = Change(call="LearningRateMonitor", arguments={"logging_interval": "epoch"})
    sanity = Change(call="Trainer", arguments={"num_sanity_val_steps": 0})
    got = built(YAML, RARER, monitor, sanity, NO_STATS, REFRESH)
    assert "log_every_n_steps: 100   # often enough\n" in got.text
    assert "logging_interval: 'epoch'  # in full\n" in got.text
    assert "  max_epochs: 1\n  num_sanity_val_steps: 0\n" in got.text
    assert "DeviceStatsMonitor" not in got.text
    assert "    - class_path: lightning.pytorch.callbacks.TQDMProgressBar\n      init_args:\n" in got.text
    assert got.text.count("#") == YAML.count("#")
    assert got.trainer.log_every_n_steps == 100
    assert got.trainer.progress_bar_callback.refresh_rate == 20
    assert got.made.unplaced == ()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("trainer:\n", "trainer:\n  callbacks:\n"),
        ("trainer:\n  callbacks:\n", "trainer:\n  callbacks:\n"),
        ("trainer:\n  logger: false\n", "trainer:\n  logger: false\n  callbacks:\n"),
        ("trainer:\n  callbacks: null # none\n", "trainer:\n  callbacks: # none\n"),
    ],
)
def test_the_first_callback_makes_the_list(built, text: str, after: str) -> None:
    got = built(text, REFRESH)
    assert got.text.startswith(
        f"{after}    - class_path: lightning.pytorch.callbacks.TQDMProgressBar\n      init_args:\n"
    )
    assert got.trainer.progress_bar_callback.refresh_rate == 20


def test_settings_of_the_process_go_into_the_script_and_a_model_is_compiled_by_hand(built) -> None:
    got = built(YAML, MATMUL, COMPILE)
    script = Path("train.py").read_text()
    assert '    torch.set_float32_matmul_precision("high")\n    return LightningCLI(' in script
    assert script.startswith("import torch\nfrom lightning")
    assert [one.why for one in got.made.unplaced] == [
        "there is no trainer.fit(...) in train.py: compile it where it is made"
    ]


def test_an_optimizer_of_the_yaml(tmp_path: Path) -> None:
    text = "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: 1e-3\nmodel:\n  width: 8\n"
    new = _patched(tmp_path, text, FUSED)
    assert new == text.replace("lr: 1e-3\n", "lr: 1e-3\n    fused: true\n")


def test_the_loader_of_a_library_is_set_where_the_yaml_has_its_arguments(tmp_path: Path) -> None:
    text = "data:\n  class_path: library.Other\n  init_args: {num_workers: 0}\n"
    assert _patched(tmp_path, text, WORKERS) == text.replace("0", "2")
    made = _made(tmp_path, text, KEPT)
    assert made.files == ()
    assert made.unplaced[0].why == "Other, which the configuration names, is in none of train.py"


def test_a_file_for_all_subcommands_has_the_settings_below_fit(tmp_path: Path) -> None:
    text = "fit:\n  trainer:\n    max_epochs: 1\n"
    assert _patched(tmp_path, text, RARER) == text + "    log_every_n_steps: 100\n"


def test_crlf_stays(tmp_path: Path) -> None:
    text = YAML.replace("\n", "\r\n")
    assert _patched(tmp_path, text, RARER, REFRESH).replace("\r\n", "").count("\n") == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("trainer:\n  log_every_n_steps: *n\nn: &n 50\n", None),
        ("n: &n 50\ntrainer:\n  log_every_n_steps: *n\n", "alias"),
        ("trainer: &all\n  log_every_n_steps: 50\nother: *all\n", "without changing something else"),
        ("trainer: trainer.yaml\n", "has no settings"),
        ("trainer:\n  log_every_n_steps: [50]\n", "not a single value"),
        ("trainer:\n  max_epochs: 1\n  max_epochs: 2\n", "has a key twice"),
    ],
)
def test_what_cannot_be_set_alone_is_left(tmp_path: Path, text: str, why: str | None) -> None:
    if why is None:
        with pytest.raises(PatchError, match=r"config\.yaml:\d+ is not YAML"):
            _made(tmp_path, text, RARER)
        return
    made = _made(tmp_path, text, RARER)
    assert made.files == ()
    assert why in made.unplaced[0].why
    assert made.unplaced[0].snippet == ("Trainer(..., log_every_n_steps=100)",)


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n"])
def test_what_is_no_configuration_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(PatchError, match="nothing was changed"):
        _made(tmp_path, text, RARER)


def test_the_digits_become_what_the_fixed_configuration_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    made = patch([KEPT], sources=list(Path("examples").rglob("*.py")), config=Path("configs/digits.yaml"))
    (file,) = made.files
    patched, fixed = yaml.safe_load(file.text), yaml.safe_load(Path("configs/digits_fixed.yaml").read_text())
    patched["trainer"]["logger"]["init_args"]["name"] += "_fixed"
    assert fixed["data"].pop("pin_memory") is False  # the default
    assert patched == fixed
    assert file.diff == (
        "--- a/configs/digits.yaml\n"
        "+++ b/configs/digits.yaml\n"
        "@@ -29,4 +29,5 @@\n"
        "   cpu_threads: 1 # leaves the other CPUs to the DataLoader workers\n"
        " data:\n"
        "   batch_size: 32\n"
        "-  num_workers: 0\n"
        "+  num_workers: 2\n"
        "+  persistent_workers: true\n"
    )


def _made(folder: Path, text: str, *changes: Change):
    (folder / "train.py").write_text(CLI)
    (folder / "config.yaml").write_bytes(text.encode())
    return patch(changes, sources=[folder / "train.py"], config=folder / "config.yaml")


def _patched(folder: Path, text: str, *changes: Change) -> str:
    made = _made(folder, text, *changes)
    assert made.unplaced == ()
    (file,) = made.files
    return file.text


_SCALARS = st.one_of(st.integers(-9, 9), st.booleans(), st.none(), st.sampled_from(["a", "b: c", "16-mixed", "#", "'"]))
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(
    tree=st.dictionaries(st.sampled_from("abcd"), _TREES, min_size=1),
    path=st.lists(st.sampled_from("abcde"), min_size=1, max_size=3),
    value=_SCALARS,
    flow=st.sampled_from((False, None)),
)
@settings(max_examples=200, deadline=None)
def test_setting_a_value_changes_that_value_only_and_once(tree, path, value, flow) -> None:
    before = Configuration(Path("config.yaml"), yaml.safe_dump(tree, default_flow_style=flow))
    try:
        after = before.set(path, value)
    except NotPlacedError:
        return
    wanted = inner = yaml.safe_load(before.text)
    for key in path[:-1]:
        inner[key] = inner.get(key) or {}
        inner = inner[key]
    inner[path[-1]] = value
    assert yaml.safe_load(after.text) == wanted
    assert after.set(path, value).text == after.text
