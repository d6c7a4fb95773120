"""The size of what was saved last, of real callbacks after a real fit."""

from pathlib import Path

import pytest
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from truths.setup import set_up

from lightning_gpuprof.capture.conditions.checkpoint_files import checkpoint_bytes


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
