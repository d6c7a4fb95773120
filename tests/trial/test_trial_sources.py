"""Where steps get their batches: real loaders, with other arguments, and one batch again and again."""

import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset

from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.trial.sources import LoaderSource, ReplaySource, changed, has_already

LENGTH = 24


class Stream(IterableDataset[int]):
    """Samples without a length."""

    def __iter__(self) -> Iterator[int]:
        yield from range(LENGTH)


class FirstWaits(Dataset[int]):
    """The first sample is there only after the fourth, which another worker loads."""

    def __init__(self, fourth: Path) -> None:
        self.fourth = fourth

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        if index == 3:
            time.sleep(0.3)  # until the second one is on its way
            self.fourth.touch()
        while index == 0 and not self.fourth.exists():
            time.sleep(0.01)
        return index


class Named(DataLoader[Any]):
    """A user's loader with an argument of its own."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(TensorDataset(torch.arange(LENGTH)), **options)
        self.name = name


def combined(*loaders: Any, mode: Any = "min_size") -> CombinedLoader:
    """As Lightning's fit loop has it when the trial begins."""
    found = CombinedLoader(loaders[0] if len(loaders) == 1 else list(loaders), mode)
    iter(found)
    return found


def plain(**options: Any) -> DataLoader[Any]:
    """Batches 0-1, 2-3, ..."""
    return DataLoader(TensorDataset(torch.arange(LENGTH)), **{"batch_size": 2, **options})


def taken(source: LoaderSource, count: int) -> list[Any]:
    """First sample of the batches."""
    found = []
    for _ in range(count):
        batch, _, _ = source.take()
        while isinstance(batch, (list, tuple)):
            batch = batch[0]
        found.append(int(batch.reshape(-1)[0]))
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_epoch_follows_epoch(workers: int) -> None:
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    source = LoaderSource(combined(plain(**options)))
    try:
        assert taken(source, 14) == [*range(0, LENGTH, 2), 0, 2]
    finally:
        source.close()


def test_a_loader_that_has_begun_goes_on() -> None:
    own = combined(plain())
    iterator = iter(own)
    next(iterator)
    assert taken(LoaderSource(own, iterator), 2) == [2, 4]


@pytest.mark.parametrize("mode", ["min_size", "max_size_cycle", "max_size"])
def test_combined_loaders_keep_their_mode(mode: str) -> None:
    own = combined(plain(), DataLoader(torch.arange(6)), mode=mode)
    source = LoaderSource(changed(own, {"pin_memory": False, "drop_last": True}))
    batches = [source.take()[0] for _ in range(13)]
    assert [batch[1] is None for batch in batches[:12]] == [mode == "max_size" and n > 5 for n in range(12)]
    numbers = [int(batch[0][0][0]) for batch in batches]
    expected = [*range(0, 12, 2), *range(0, 12, 2), 0] if mode == "min_size" else [*range(0, LENGTH, 2), 0]
    assert numbers == expected


def test_a_stream_without_length_begins_again() -> None:
    source = LoaderSource(combined(DataLoader(Stream(), batch_size=8)))
    assert taken(source, 5) == [0, 8, 16, 0, 8]
    assert source.spread_s(100) == 0.0


def test_a_loader_without_batches_is_named() -> None:
    with pytest.raises(TrialError, match="has no batches"):
        LoaderSource(combined(DataLoader([]))).take()


def test_other_arguments_are_those_of_a_copy() -> None:
    own = combined(Named("mine", batch_size=2, num_workers=1, prefetch_factor=3))
    before = dict(vars(own.flattened[0]))
    other = changed(own, {"num_workers": 2, "persistent_workers": True})
    [loader] = other.flattened
    assert (type(loader), loader.name) == (Named, "mine")
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 3, True)
    assert vars(own.flattened[0]) == before
    assert own.flattened[0] is own.iterables
    assert loader is other.iterables
    source = LoaderSource(other)
    try:
        assert taken(source, 3) == [0, 2, 4]
    finally:
        source.close()


@pytest.mark.skipif(not hasattr(plain(), "in_order"), reason="torch before 2.6 keeps the order")
def test_batches_in_any_order_do_not_wait_for_a_slow_worker(tmp_path: Path) -> None:
    own = combined(DataLoader(FirstWaits(tmp_path / "fourth"), num_workers=2))
    source = LoaderSource(changed(own, {"in_order": False}))
    try:
        assert taken(source, 1) == [1]
    finally:
        source.close()


def test_the_order_cannot_be_left_to_a_loader_of_torch_before_2_6() -> None:
    own = combined(plain(num_workers=2))
    vars(own.flattened[0]).pop("in_order", None)
    with pytest.raises(TrialError, match=r"needs torch 2\.6"):
        changed(own, {"in_order": False})


def test_what_all_loaders_have_is_no_change() -> None:
    own = combined(plain(num_workers=2), plain(num_workers=2, prefetch_factor=4))
    assert has_already(own, {"num_workers": 2, "pin_memory": False})
    assert not has_already(own, {"num_workers": 2, "prefetch_factor": 4})
    assert not has_already(CombinedLoader([range(3)]), {"num_workers": 2}), (
        "why it cannot have them is said by changed()"
    )


def test_without_workers_nothing_of_theirs_stays() -> None:
    own = combined(plain(num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=5))
    [loader] = changed(own, {"num_workers": 0}).flattened
    assert (loader.prefetch_factor, loader.persistent_workers, loader.timeout) == (None, False, 0)
    assert taken(LoaderSource(changed(own, {"num_workers": 0})), 2) == [0, 2]


@pytest.mark.parametrize(
    ("loader", "arguments", "words"),
    [
        (plain(), {"prefetch_factor": 4}, "prefetch_factor needs workers"),
        (plain(), {"persistent_workers": True}, "persistent_workers needs workers"),
        (plain(), {"collate_fn": "x"}, "cannot be changed while training runs"),
        (range(3), {"num_workers": 2}, "come from range"),
        (
            DataLoader(
                TensorDataset(torch.arange(4)),
                batch_sampler=type("Own", (BatchSampler,), {})(SequentialSampler([1]), 1, False),
            ),
            {"drop_last": True},
            "batch sampler of its own",
        ),
    ],
)
def test_what_cannot_be_changed_is_said(loader: Any, arguments: dict[str, Value], words: str) -> None:
    own = CombinedLoader([loader], "min_size")
    with pytest.raises(TrialError, match=words):
        changed(own, arguments)


def test_drop_last_makes_batches_of_one_size() -> None:
    own = combined(DataLoader(TensorDataset(torch.arange(5)), batch_size=2))
    source = LoaderSource(changed(own, {"drop_last": True}))
    assert taken(source, 3) == [0, 2, 0]


def test_the_start_of_workers_is_spread_over_an_epoch() -> None:
    own = combined(plain(num_workers=1))
    source = LoaderSource(own, iter(own))
    try:
        source.take()
        source.begin_block()
        start_s = source.spread_s(len(own))
        assert start_s > 0.001, "a process was started"
        taken(source, 11)
        assert source.spread_s(6) == pytest.approx(start_s / 2)
        source.take()  # the next epoch: its start is part of what the block took
        before = source.spread_s(0)
        assert before < 0
        source.begin_block()
        assert source.spread_s(0) == 0.0
    finally:
        source.close()


def test_workers_that_stay_start_once() -> None:
    own = combined(plain(num_workers=1, persistent_workers=True))
    source = LoaderSource(own)
    try:
        source.take()
        assert source.spread_s(100) == 0.0
    finally:
        source.close()


def test_a_queue_is_steady_once_what_it_held_is_used() -> None:
    own = combined(plain(num_workers=1, persistent_workers=True, prefetch_factor=3))
    source = LoaderSource(own)
    assert source.unstarted_workers() == 1
    try:
        source.take()
        source.rest()
        [worker] = own._iterator.iterators[0]._workers
        assert source.worker_pids() == [worker.pid]
        assert source.unstarted_workers() == 0
        [(held, asked)] = source._queues()
        assert held == asked == 3
        seen = 0
        while not source.is_steady():
            source.take()
            time.sleep(0.05)
            seen += 1
        assert 1 <= seen <= 4
    finally:
        source.close()
    assert not worker.is_alive()


def test_without_workers_it_is_steady_at_once() -> None:
    source = LoaderSource(combined(plain()))
    source.take()
    source.rest()
    assert source.is_steady()


Pair = namedtuple("Pair", "image label")


def test_a_replayed_batch_is_the_same_in_containers_of_its_own() -> None:
    image = torch.ones(2)
    source = ReplaySource(({"pair": Pair(image, [torch.zeros(1)]), "name": "x"}, 3, 0))
    (first, number, loader), (second, _, _) = source.take(), source.take()
    assert (number, loader) == (3, 0)
    first["pair"].label.append("more")
    first.clear()
    assert set(second) == {"pair", "name"}
    assert isinstance(second["pair"], Pair)
    assert len(second["pair"].label) == 1
    assert second["pair"].image.data_ptr() == image.data_ptr(), "nothing is copied"


def test_a_step_that_changes_its_batch_in_place_gets_a_copy_from_then_on() -> None:
    source = ReplaySource((torch.ones(2), 0, 0))
    values = []
    for _ in range(4):
        batch, _, _ = source.take()
        values.append(float(batch[0]))
        batch.mul_(2)
    assert values == [1.0, 2.0, 2.0, 2.0]


def test_what_a_step_asks_of_its_batch_does_not_last() -> None:
    source = ReplaySource((torch.ones(2), 0, 0))
    for _ in range(2):
        batch, _, _ = source.take()
        assert not batch.requires_grad
        batch.requires_grad_()
        batch.sum().backward()
        assert torch.equal(batch.grad, torch.ones(2))


def test_a_replay_has_no_queue_and_no_worker() -> None:
    source = ReplaySource((torch.ones(1), 0, 0))
    source.rest()
    source.begin_block()
    assert source.is_steady()
    assert (source.worker_pids(), source.unstarted_workers()) == ([], 0)
    assert source.spread_s(10) == 0.0
    source.close()
