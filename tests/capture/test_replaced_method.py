"""Methods of torch's classes that runs replace for a while, in whatever order the runs end."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from lightning_gpuprof.capture.replaced_method import Around, replace_method


class Loader:
    """With a method as torch's."""

    def calls(self) -> list[str]:
        """Who was called."""
        return ["original"]


ORIGINAL = vars(Loader)["calls"]


def naming(name: str) -> Around:
    def around(original: Callable[[Any], list[str]], loader: Loader) -> list[str]:
        return [name, *original(loader)]

    return around


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_each_run_takes_back_its_own_in_any_order(order: tuple[int, ...]) -> None:
    undo = [replace_method(Loader, "calls", naming(str(run))) for run in range(3)]
    left = ["2", "1", "0", "original"]
    assert Loader().calls() == left
    for run in order:
        undo[run]()
        undo[run]()
        left.remove(str(run))
        assert Loader().calls() == left
    assert vars(Loader)["calls"] is ORIGINAL


def test_below_the_function_of_somebody_else_it_stays_does_nothing_and_holds_nothing() -> None:
    class Run:
        def around(self, original: Callable[[Any], list[str]], loader: Loader) -> list[str]:
            return ["run", *original(loader)]

    run = Run()
    held = weakref.ref(run)
    undo = replace_method(Loader, "calls", run.around)
    ours = vars(Loader)["calls"]
    Loader.calls = lambda self: ["theirs", *ours(self)]  # type: ignore[method-assign]
    try:
        assert Loader().calls() == ["theirs", "run", "original"]
        undo()
        del run
        gc.collect()
        assert Loader().calls() == ["theirs", "original"]
        assert held() is None
    finally:
        Loader.calls = ORIGINAL  # type: ignore[method-assign]
