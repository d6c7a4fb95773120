"""What is measured of the items, transforms and batches of a loader, in workers and in the training process."""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from probed_loaders import (
    Compose,
    Images,
    Measured,
    Nap,
    ShuffledCompose,
    Stream,
    batches,
    loader,
    measured_run,
    negative,
    same,
)
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    IterableDataset,
    Sampler,
    SequentialSampler,
    Subset,
)

METHODS = ("fork", "spawn", "forkserver")


@pytest.mark.parametrize("method", METHODS)
def test_items_collation_transforms_and_regions_are_measured_in_every_kind_of_worker(method: str) -> None:
    workers = 2 if method == "fork" else 1  # each of another kind imports torch
    measured = loader(Images(24, nap_s=0.016, decode_s=0.008), num_workers=workers, multiprocessing_context=method)
    with Measured(measured) as found:
        ours = batches(measured)
    assert same(ours, batches(loader(Images(24), num_workers=workers, multiprocessing_context="fork")))
    assert found.reported == []
    of_workers = [f"loader0.worker{number}" for number in range(workers)]
    for worker in of_workers:
        assert found.count(worker, "batches_count") == 6 / workers
        # On a busy machine noting takes longer, and a batch goes without.
        items = 4 * found.count(worker, "measured_count")
        assert 4 <= items <= 24 / workers
        assert found.count(worker, "items_count") == items
        assert found.count(worker, "item_sum_s") >= items * 0.024
        assert found.count(worker, "item_max_s") >= found.count(worker, "item_p95_s") >= 0.024
        assert found.count(worker, "collate_sum_s") > 0
    noted = sum(found.count(worker, "items_count") for worker in of_workers)
    assert found.count("loader0.transform:Nap", "calls_count") == noted
    assert found.count("loader0.transform:Nap", "sum_s") >= noted * 0.016
    assert found.count("loader0.transform:negative", "calls_count") == noted
    assert found.count("loader0.region:decode", "sum_s") >= noted * 0.008
    assert 0 < found.count("loader0.transform:negative", "sum_s") < found.count("loader0.transform:Nap", "sum_s")


def test_the_training_process_is_measured_where_there_are_no_workers() -> None:
    found = measured_run(loader(Images(24, nap_s=0.02), num_workers=0))
    assert found.count("loader0.process", "batches_count") == 6
    items = found.count("loader0.process", "items_count")  # of whole batches: a busy machine leaves time for fewer
    assert 4 <= items <= 24
    assert items % 4 == 0
    assert found.count("loader0.process", "item_sum_s") >= items * 0.02
    assert found.count("loader0.transform:Nap", "calls_count") == items


def test_workers_that_persist_and_workers_of_each_epoch_add_up() -> None:
    for persistent in (True, False):
        measured = loader(Images(16, nap_s=0.002), persistent_workers=persistent)
        found = measured_run(measured, epochs=3)
        assert found.measured_batches() == 12


def test_short_items_are_sampled_and_all_batches_counted() -> None:
    found = measured_run(loader(torch.arange(4000.0), batch_size=8, num_workers=1))
    assert found.count("loader0.worker0", "batches_count") == 500
    assert 1 <= found.count("loader0.worker0", "measured_count") < 250


class Shards(IterableDataset[torch.Tensor]):
    """Opens a shard every 20 items; an item says how long it took."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(400):
            begun = time.perf_counter()
            if number % 20 == 0:
                time.sleep(0.002)
            yield torch.tensor(time.perf_counter() - begun, dtype=torch.float64)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_time_of_every_batch_counts_and_of_few_how_it_divides(workers: int) -> None:
    measured = loader(Shards(), batch_size=1, num_workers=workers)
    begun = time.perf_counter()
    with Measured(measured) as found:
        seconds = [float(batch) for batch in measured]
    process = f"loader0.{'worker0' if workers else 'process'}"
    assert sum(seconds) <= found.count(process, "made_sum_s") <= time.perf_counter() - begun
    assert found.count(process, "measured_count") < found.count(process, "batches_count") == len(seconds)
    assert found.count(process, "idle_count") == len(seconds) - 1


class Costs(torch.utils.data.Dataset[float]):
    """Items that sleep or compute for 20 ms."""

    def __init__(self, burns: bool) -> None:
        self.burns = burns

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        end = time.thread_time() + 0.02
        while self.burns and time.thread_time() < end:
            pass
        if not self.burns:
            time.sleep(0.02)
        return 0.0


@pytest.mark.parametrize("workers", [0, 1])
def test_the_cpu_time_of_a_batch_is_that_of_what_makes_it(workers: int) -> None:
    process = f"loader0.{'worker0' if workers else 'process'}"
    spent = {}
    for burns in (False, True):
        measured = loader(Costs(burns), batch_size=2, num_workers=workers)
        found = measured_run(measured)
        cpu_s, seconds = found.count(process, "cpu_sum_s"), found.count(process, "item_sum_s")
        assert 0 < cpu_s <= 1.1 * (seconds + found.count(process, "collate_sum_s"))
        spent[burns] = cpu_s / found.count(process, "measured_count")
    assert spent[False] < 0.02 < 0.04 <= spent[True]


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_workers_that_persist_go_on_sampling_and_count_batches_only(kind: str) -> None:
    dataset: Any = torch.arange(4000.0) if kind == "map" else Stream(4000)
    found = measured_run(loader(dataset, batch_size=8, num_workers=1, persistent_workers=True), epochs=3)
    assert found.count("loader0.worker0", "batches_count") == 1500
    assert found.count("loader0.worker0", "measured_count") < 500
    assert found.reported == []


def test_several_loaders_are_separated_and_others_left_alone() -> None:
    first, second, other = loader(), loader(Images(20)), loader()
    with Measured(first, second) as found:
        batches(first)
        batches(second)
        before = dict(vars(other))
        batches(other)
        assert vars(other) == before
    assert found.measured_batches("loader0") == 10
    assert found.measured_batches("loader1") == 5
    assert not any(subject.startswith("loader2") for subject in found.values)


class Reading(Images):
    """Reads each item through a DataLoader that lives on."""

    def __init__(self, size: int) -> None:
        super().__init__(size, decode_s=0.002)
        self.rows: Any = None

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rows is None:
            self.rows = iter(DataLoader(torch.arange(100_000.0), batch_size=500))
        return super().__getitem__(index) + next(self.rows).sum()


def test_a_loader_inside_a_dataset_does_not_count_as_the_workers_own() -> None:
    without = batches(loader(Reading(40), num_workers=1))
    measured = loader(Reading(40), num_workers=1)
    with Measured(measured) as found:
        ours = batches(measured)
    assert same(ours, without)
    assert found.count("loader0.worker0", "batches_count") == 10
    measured_count = found.count("loader0.worker0", "measured_count")
    assert found.count("loader0.worker0", "items_count") == 4 * measured_count
    assert found.count("loader0.worker0", "item_sum_s") >= 4 * measured_count * 0.002


def test_transforms_are_found_in_datasets_inside_datasets() -> None:
    nested = Images(8)
    nested.transform = Compose((Compose([negative]), Nap(0.0)))
    measured = loader(ConcatDataset([Subset(Images(8), range(4)), nested]), num_workers=0, batch_size=6)
    found = measured_run(measured)
    assert found.count("loader0.transform:negative", "calls_count") > 0
    assert found.count("loader0.transform:Compose > negative", "calls_count") > 0
    assert type(nested.transform.transforms) is tuple


def test_times_go_to_the_transform_and_not_to_its_place_in_the_list() -> None:
    dataset = Images(24)
    dataset.transform = ShuffledCompose([Nap(0.004), negative])
    found = measured_run(loader(dataset, num_workers=0))
    calls = found.count("loader0.transform:Nap", "calls_count")
    assert found.count("loader0.transform:negative", "calls_count") == calls >= 4
    assert found.count("loader0.transform:Nap", "sum_s") >= calls * 0.004


def test_there_are_all_ways_to_start_workers_here() -> None:
    assert set(METHODS) == set(multiprocessing.get_all_start_methods())


class Late(Sampler[int]):
    """Gives the order, and takes a known time for each sample."""

    def __init__(self, size: int, seconds: float) -> None:
        self.size, self.seconds = size, seconds

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        for index in range(self.size):
            time.sleep(self.seconds)
            yield index


@pytest.mark.parametrize("workers", [0, 1])
def test_the_sampler_is_timed_and_named_with_its_line(workers: int) -> None:
    with Measured(loader(sampler=Late(40, 2e-3), num_workers=workers)) as found:
        assert len(list(found.loaders[0])) == 10
    line = Late.__iter__.__code__.co_firstlineno
    (subject,) = (name for name in found.values if ".order:" in name)
    assert subject.startswith("loader0.order:Late (")
    assert subject.endswith(f"test_input_measurement.py:{line})")
    asked_before = 0 if not workers else 2  # while the iterator is made
    assert found.count(subject, "calls_count") == 10 - asked_before
    assert found.count(subject, "median_s") >= 8e-3


def test_a_batch_sampler_of_the_user_is_named_before_the_sampler_in_it() -> None:
    class Batches(BatchSampler):
        pass

    plain = SequentialSampler(range(40))
    with Measured(loader(batch_size=1, batch_sampler=Batches(plain, 4, True), num_workers=0)) as found:
        list(found.loaders[0])
    assert any(".order:test_a_batch_sampler" in name and "Batches" in name for name in found.values)
    with Measured(loader(shuffle=True, num_workers=0)) as found:
        list(found.loaders[0])
    assert "loader0.order:RandomSampler" in found.values
