"""Python programs: each case of patching_cases.txt, run after its change; the diff; what is not Python; writing."""

import ast
import itertools
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from patching_cases import CASES, FUSED, RARER, THINGS, WORKERS, WRITTEN, Case, plain

from lightning_gpuprof.cli import patching
from lightning_gpuprof.cli.patching import syntax
from lightning_gpuprof.cli.patching.patch import Patch, apply, patch
from lightning_gpuprof.cli.patching.source import Source
from lightning_gpuprof.errors import PatchError
from lightning_gpuprof.model.change import Change


def _write(folder: Path, files: dict[str, bytes]) -> list[Path]:
    (folder / "things.py").write_text(THINGS)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Runs ``train.py``; a fit notes what it was given and makes its training loader."""
    import lightning.pytorch
    import pytorch_lightning

    noted = SimpleNamespace(torch=torch, loader=None, trainer=None, model=None)
    for package in (lightning.pytorch, pytorch_lightning):
        trainer, build = package.Trainer, package.Trainer.__init__

        def made(self, *args, build=build, **options):
            build(self, *args, **{"logger": False, "accelerator": "cpu", "default_root_dir": tmp_path} | options)
            noted.trainer = self

        def fit(self, model, train_dataloaders=None, val_dataloaders=None, datamodule=None):
            noted.trainer, noted.model = self, model
            given = datamodule or train_dataloaders
            noted.loader = given.train_dataloader() if hasattr(given, "train_dataloader") else given

        monkeypatch.setattr(trainer, "__init__", made)
        monkeypatch.setattr(trainer, "fit", fit)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = torch.get_float32_matmul_precision(), torch.get_num_threads(), torch.backends.cudnn.allow_tf32

    def run() -> SimpleNamespace:
        for name in ("things", "loading", "mine"):
            sys.modules.pop(name, None)
        runpy.run_path("train.py", run_name="__main__")
        return noted

    yield run
    for name in ("things", "loading", "mine"):
        sys.modules.pop(name, None)
    torch.set_float32_matmul_precision(before[0])
    torch.set_num_threads(before[1])
    torch.backends.cudnn.allow_tf32 = before[2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_after_the_change_is_as_expected_and_runs(case: Case, ran, tmp_path: Path) -> None:
    sources = _write(tmp_path, case.before)
    made = patch([case.change], sources=sources)
    assert [one.why for one in made.unplaced if case.why not in one.why or not case.why] == []
    assert bool(made.unplaced) == bool(case.why)
    assert all(one.snippet and "\n" not in one.why for one in made.unplaced)
    apply(made)
    assert {path.name: path.read_bytes() for path in sources} == case.after
    if not case.why:
        assert case.after != case.before
        assert case.ran(ran())
    again = patch([case.change], sources=sources)
    assert again.files == ()
    assert bool(again.unplaced) == bool(case.why) or case.change.remove


TAKEN_BY_GIT = [c for c in CASES if not c.why and WRITTEN.get(c.name, ("utf-8",))[0] == "utf-8"]


@pytest.mark.parametrize("case", TAKEN_BY_GIT, ids=lambda case: case.name)
def test_git_takes_the_diff(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sources = _write(tmp_path, case.before)
    diff = patch([case.change], sources=sources).diff
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=diff.encode(), check=True, cwd=tmp_path)
    assert {path.name: path.read_bytes() for path in sources} == case.after


def test_changes_come_together_and_the_first_counts(tmp_path: Path) -> None:
    sources = _write(tmp_path, {"train.py": plain("DataLoader(data, num_workers=0)").encode()})
    other = Change(call="DataLoader", arguments={"num_workers": 4, "pin_memory": True})
    precision = Change(add=('torch.set_float32_matmul_precision("high")',))
    made = patch([precision, WORKERS, RARER, other], sources=sources)
    text = made.files[0].text
    assert "DataLoader(data, num_workers=2)" in text
    assert "Trainer(max_epochs=1, log_every_n_steps=100)" in text
    assert text.index("import torch\n") < text.index('torch.set_float32_matmul_precision("high")\ntrainer')
    assert [one.why for one in made.unplaced] == ["earlier advice sets num_workers=2"]
    assert made.unplaced[0].snippet == ("DataLoader(..., num_workers=4, pin_memory=True)",)


def test_a_line_of_the_run_is_found_after_other_edits(tmp_path: Path) -> None:
    script = "import torch\nfrom lightning.pytorch import Trainer\ntrainer = Trainer()\n\n\ndef one(m):\n"
    script += "    return torch.optim.AdamW(m)\n\n\ndef two(m):\n    return torch.optim.AdamW(m)\n"
    (path,) = sources = _write(tmp_path, {"train.py": script.encode()})
    flag = Change(add=("torch.set_num_threads(1)",))
    fused = Change(call="torch.optim.AdamW", arguments={"fused": True}, file=str(path), line=11)
    made = patch([flag, fused], sources=sources)
    assert made.unplaced == ()
    assert made.files[0].text.endswith("def two(m):\n    return torch.optim.AdamW(m, fused=True)\n")
    ambiguous = patch([FUSED], sources=sources)
    assert ambiguous.files == ()
    assert "train.py:7 and train.py:11" in ambiguous.unplaced[0].why


@pytest.mark.parametrize(("place", "begin"), [("", "by hand: it"), ("in collate_fn", "by hand, in collate_fn: it")])
def test_what_is_put_in_by_hand_says_where(place: str, begin: str, tmp_path: Path) -> None:
    sources = _write(tmp_path, {"train.py": b"from lightning.pytorch import Trainer\n"})
    (unplaced,) = patch([Change(add=("padded = pad(batch)",), place=place)], sources=sources).unplaced
    assert unplaced.lines[0].startswith(begin)
    assert unplaced.lines[1:] == ("  padded = pad(batch)",)


def test_what_is_imported_is_not_imported_again() -> None:
    text = b"from lightning.pytorch.callbacks import Callback, ModelCheckpoint as Kept\n"
    source = Source(Path("train.py"), text, ast.parse(text))
    assert syntax.add_import(source, "lightning.pytorch.callbacks", "Callback") == text
    added = syntax.add_import(source, "lightning.pytorch.callbacks", "ModelCheckpoint")
    assert added == text.replace(b" as Kept", b" as Kept, ModelCheckpoint")
    two = text + b"from lightning.pytorch.callbacks import Timer as Timer\n"
    assert (
        syntax.add_import(Source(Path("train.py"), two, ast.parse(two)), "lightning.pytorch.callbacks", "Timer") == two
    )


def test_a_file_that_is_no_python_is_named_with_its_line(tmp_path: Path) -> None:
    sources = _write(tmp_path, {"train.py": b"import torch\n%matplotlib inline\n"})
    with pytest.raises(PatchError, match=r"train\.py:2 is not Python"):
        patch([WORKERS], sources=sources)


def test_without_libcst_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = _write(tmp_path, {"train.py": plain("DataLoader(data)").encode()})
    monkeypatch.setitem(sys.modules, "libcst", None)
    monkeypatch.delitem(sys.modules, "lightning_gpuprof.cli.patching.syntax", raising=False)
    monkeypatch.delattr(patching, "syntax", raising=False)
    with pytest.raises(PatchError, match=r"lightning-gpuprof\[patch\]"):
        patch([WORKERS], sources=sources)


def _patched(folder: Path) -> Patch:
    return patch([WORKERS], sources=_write(folder, {"train.py": plain("DataLoader(data)").encode()}))


def test_nothing_is_written_before_it_is_applied_and_then_links_and_modes_stay(tmp_path: Path) -> None:
    made = _patched(tmp_path)
    path = tmp_path / "train.py"
    assert path.read_bytes() == made.files[0].before
    path.rename(tmp_path / "real.py")
    path.symlink_to("real.py")
    (tmp_path / "real.py").chmod(0o750)
    apply(made)
    assert path.is_symlink()
    assert (tmp_path / "real.py").read_bytes() == made.files[0].after
    assert (tmp_path / "real.py").stat().st_mode & 0o777 == 0o750
    assert sorted(one.name for one in tmp_path.iterdir()) == ["real.py", "things.py", "train.py"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    made = _patched(tmp_path)
    (tmp_path / "train.py").write_text("# all new\n")
    with pytest.raises(PatchError, match="has changed since"):
        apply(made)
    assert (tmp_path / "train.py").read_text() == "# all new\n"


_ARGUMENTS = ("data", "batch_size=4", "shuffle=bool([1, 2][0])", "num_workers=0", "drop_last=True", "timeout=(0)")
_BETWEEN = (", ", ",", ",\n    ", ",  # why\n    ", ",\n    # why\n    ", ",\n           ")


@given(
    chosen=st.lists(st.sampled_from(_ARGUMENTS[1:]), unique=True),
    between=st.lists(st.sampled_from(_BETWEEN), min_size=6, max_size=6),
    begin=st.sampled_from(("", "\n    ", "  # all of them\n    ")),
    end=st.sampled_from(("", "\n", ",", ",\n", ",  # the end\n", "  # the end\n")),
    values=st.fixed_dictionaries({"num_workers": st.integers(1, 9)}, optional={"pin_memory": st.booleans()}),
)
@settings(max_examples=150, deadline=None)
def test_any_layout_keeps_its_comments_and_other_arguments(chosen, between, begin, end, values) -> None:
    words = itertools.chain.from_iterable(zip([*between, ""], [_ARGUMENTS[0], *chosen], strict=False))
    call = f"DataLoader({begin}{''.join(list(words)[1:])}{end})"
    program = f"from torch.utils.data import DataLoader\n\ndef train_dataloader(data):\n    return {call}\n"
    made, text = _in_memory(program, values)
    wanted = {**_keywords(program), **{name: repr(value) for name, value in values.items()}}
    assert _keywords(text) == wanted
    assert text.count("#") == program.count("#")
    assert made.unplaced == ()
    assert _in_memory(text, values)[1] == text


def _in_memory(program: str, values: dict[str, int]) -> tuple[Patch, str]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(program)
        made = patch([Change(call="DataLoader", arguments=values)], sources=[path])
    return made, made.files[0].text if made.files else program


def _keywords(program: str) -> dict[str | None, str]:
    function = ast.parse(program).body[1]
    assert isinstance(function, ast.FunctionDef)
    (returned,) = function.body
    assert isinstance(returned, ast.Return)
    assert isinstance(returned.value, ast.Call)
    return {keyword.arg: ast.unparse(keyword.value) for keyword in returned.value.keywords}
