"""Sentences name a place in the code by its function."""

import pytest

from lightning_gpuprof.model.code_place import in_words


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("costs.py:38 take", "take() (costs.py:38)"),
        ("models/net.py(12): training_step", "training_step() (models/net.py:12)"),
        ("my run (2)/net.py(12): <lambda>", "<lambda> (my run (2)/net.py:12)"),
        ("C:/work/net.py:7 forward", "forward() (C:/work/net.py:7)"),
        ("<ipython-input-3-ab>:5 training_step", "training_step() (<ipython-input-3-ab>:5)"),
        ("train.py(3): <module>", "train.py:3"),
    ],
)
def test_a_line_is_named_by_its_function(place: str, words: str) -> None:
    assert in_words(place) == words


@pytest.mark.parametrize(
    "place", ["", "Watch.on_train_batch_end", "aten::item in forward", "backward", "net.py forward"]
)
def test_what_is_no_line_stays_as_it_is(place: str) -> None:
    assert in_words(place) == place
