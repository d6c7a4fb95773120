"""Benchmarks name the argument that nothing can be measured with, and end before an hour is spent."""

import importlib

import pytest

IMPOSSIBLE = {
    "accounting": ("--scale 0", "--epochs 0"),
    "diagnosis": ("--steps 3", "--slots 1", "--rounds 0"),
    "import_time": ("--rounds 0",),
    "long_run": ("--steps 100", "--slots 1"),
    "one_fit": ("--steps 100",),
    "overhead": ("--rounds 0", "--steps 100", "--variants other"),
    "page": ("--steps 10", "--rounds 0"),
    "short_fit": ("--rounds 0",),
    "trace": ("--rounds 0", "--grown-rounds 0", "--readers nobody", "--traces /no/such/folder"),
    "window_stall": ("--rounds 0", "--before 5", "--after 1", "--variants x"),
}


@pytest.mark.parametrize(
    ("program", "arguments"), [(name, one) for name, all_of in IMPOSSIBLE.items() for one in all_of]
)
def test_impossible_arguments_are_refused(program: str, arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        importlib.import_module(program).main(arguments.split())
    assert refused.value.code == 2
    option, value = arguments.split()
    _, _, error = capsys.readouterr().err.rpartition("error: ")
    assert option in error or value in error
