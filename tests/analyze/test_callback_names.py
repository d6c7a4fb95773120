"""How callbacks are called, and distinguished where a class occurs twice."""

import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.callback_names import callback_names
from lightning_gpuprof.model.journal import Slot


def named(*keys: str) -> list[str]:
    slots = [
        Slot(id=number, action="a", phase="callbacks", callback=key, hook="on_fit_end")
        for number, key in enumerate(keys)
    ]
    names = callback_names(slots)
    return [names[key] for key in keys]


def test_one_of_a_class_is_called_by_its_class() -> None:
    keys = ("ModelCheckpoint{'monitor': 'a'}", "EarlyStopping", "ModelCheckpoint{'monitor': 'a'}", "")
    assert named(*keys[:3]) == ["ModelCheckpoint", "EarlyStopping", "ModelCheckpoint"]
    assert callback_names([Slot(id=0, action="other", phase="loop")]) == {}


def test_two_of_a_class_are_separated_by_the_arguments_that_differ() -> None:
    first = "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', 'every_n_epochs': 1}"
    second = "ModelCheckpoint{'monitor': None, 'mode': 'min', 'every_n_epochs': 1}"
    assert named(first, second) == ["ModelCheckpoint (monitor=val_loss)", "ModelCheckpoint (monitor=None)"]


@pytest.mark.parametrize(
    "keys",
    [
        ("Nap{'a': '" + "x" * 60 + "'}", "Nap{'a': 'y'}"),  # too long
        ("Nap{'a': datetime.timedelta(1)}", "Nap{'a': datetime.timedelta(2)}"),  # no plain values
        ("Nap", "Nap{'a': 1}"),  # one has none
        ("Nap{'a': 1}", "Nap{'a': '1'}"),  # alike in print
        ("Nap{", "Nap{" + "(" * 500),
    ],
)
def test_what_cannot_be_told_briefly_is_numbered(keys: tuple[str, ...]) -> None:
    assert named(*keys) == ["Nap #1", "Nap #2"]


def test_ledger_callbacks_and_shares_hold_two_of_a_class_apart_by_the_same_names() -> None:
    of = journal()
    of.slots = [
        *of.slots,
        Slot(id=9, action="h", phase="callbacks", callback="Slow{'every': 7}", hook="on_train_batch_end"),
    ]
    for index in range(len(of.steps)):
        charge(of, 9, index, 3 * MS)
    m = build(of)
    expected = ["Slow (every=7)", "Slow (every=3)"]
    assert [c.name for c in m.callback_shares] == expected
    assert [row.name for row in m.callbacks] == expected
    assert [row.name for row in m.ledger if row.name.startswith("Slow")] == expected
    assert [row.total_s for row in m.callbacks] == pytest.approx([0.3, 0.1])
