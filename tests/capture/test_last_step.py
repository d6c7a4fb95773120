"""What is known after the last step of a real fit."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from truths.setup import set_up

from lightning_gpuprof.capture.conditions.last_step import checkpoint_bytes, logged_values


def size_of(*files: Path) -> int:
    return sum(file.stat().st_size for file in files)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("last", "files"), [(None, 1), (True, 2), ("link", 1)])
def test_all_that_a_step_saves_counts(last: bool | str | None, files: int, tmp_path: Path) -> None:
    saves = ModelCheckpoint(dirpath=tmp_path / "saved", every_n_train_steps=2, save_last=last)  # type: ignore[arg-type]
    setup = set_up("mlp", steps=4, folder=str(tmp_path), seed=1)
    setup.callbacks.append(saves)
    setup.trainer["enable_checkpointing"] = True
    setup.fit([])
    written = [file for file in (tmp_path / "saved").iterdir() if not file.is_symlink()]
    assert len(written) == files
    assert checkpoint_bytes([saves]) == {"checkpoint.bytes": size_of(*written)}


def test_what_is_not_here_has_no_size(tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    folder.mkdir()
    for path in ("", "s3://bucket/last.ckpt", str(tmp_path / "gone.ckpt"), str(folder), "\0"):
        saves = ModelCheckpoint()
        saves.last_model_path = path
        assert checkpoint_bytes([saves, EarlyStopping("loss")]) == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("strategy", "synced"), [("auto", 0), ("ddp", 2)])
def test_it_is_known_how_many_values_ranks_exchange_in_each_step(strategy: str, synced: int, tmp_path: Path) -> None:
    setup = set_up("mlp", steps=2, folder=str(tmp_path), seed=1)
    setup.trainer["strategy"] = strategy
    logged: dict[str, dict[str, bool]] = {
        "own": {},
        "each_step": {"sync_dist": True},
        "both": {"sync_dist": True, "on_step": True, "on_epoch": True},
        "each_epoch": {"sync_dist": True, "on_step": False, "on_epoch": True},
        "of_rank_0": {"sync_dist": True, "rank_zero_only": True},
    }
    for name, how in logged.items():
        setup.model.logs.append(lambda model, loss, name=name, how=how: model.log(name, loss, **how))  # type: ignore[misc]
    reads = Reads()
    setup.callbacks.append(reads)
    setup.fit([])
    assert reads.found == {"trainer.logged_values": 5, "trainer.synced_values": synced}


class Reads(Callback):
    """Asks after the last step."""

    def on_train_end(self, trainer: Any, pl_module: object) -> None:
        self.found = logged_values(trainer)
