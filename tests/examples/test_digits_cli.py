import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from python_process import run_python

from examples.digits.__main__ import main

PROFILER = "lightning_gpuprof.GpuProfiler"
CONFIGS = ("digits", "digits_fixed")


def _read(repository: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((repository / "configs" / f"{name}.yaml").read_text())
    return loaded


@pytest.mark.parametrize("name", CONFIGS)
def test_configs_parse_and_name_the_profiler(
    repository: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(repository)
    monkeypatch.setattr(sys, "argv", ["digits", "fit", "--config", f"configs/{name}.yaml", "--print_config"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert PROFILER in [callback["class_path"] for callback in printed["trainer"]["callbacks"]]
    assert printed["data"]["num_workers"] == _read(repository, name)["data"]["num_workers"]


def test_the_fixed_config_differs_only_in_the_loader_and_the_name(repository: Path) -> None:
    slow, fixed = (_read(repository, name) for name in CONFIGS)
    assert slow.pop("data") == {"batch_size": fixed["data"]["batch_size"], "num_workers": 0}
    assert fixed.pop("data")["num_workers"] > 0
    for name, config in zip(CONFIGS, (slow, fixed), strict=True):
        assert config["trainer"]["logger"]["init_args"].pop("name") == name
    assert slow == fixed


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_few_steps_train_and_leave_a_checkpoint(
    repository: Path, digits_folder: Path, tmp_path: Path, name: str
) -> None:
    config = _read(repository, name)
    trainer = config["trainer"]
    trainer["max_steps"] = 6
    trainer["limit_val_batches"] = 2
    trainer["val_check_interval"] = 6
    trainer["accelerator"] = "cpu"
    trainer["logger"]["init_args"]["save_dir"] = str(tmp_path)
    short = tmp_path / "short.yaml"
    short.write_text(yaml.safe_dump(config))
    words = ("-m", "examples.digits", "fit", "--config", short)
    run_python(*words, cwd=repository, DIGITS_DATA=str(digits_folder), GPUPROF="")
    assert len(list(tmp_path.glob(f"{name}/version_0/checkpoints/*.ckpt"))) == 1
