"""What is measured in workers, and that neither they nor what they make is changed by it."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from probed_loaders import (
    Add,
    AliasedCompose,
    Compose,
    Images,
    Measured,
    Nap,
    RenewedCompose,
    ShuffledCompose,
    Stream,
    Together,
    batches,
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
    dataloader,
)
from torch.utils.data._utils import fetch
from torch.utils.data._utils import worker as torch_worker

from lightning_gpuprof.analyze.input_pipeline import MIN_BATCHES
from lightning_gpuprof.capture.input import slots
from lightning_gpuprof.capture.input.probe import Probe
from lightning_gpuprof.capture.input.sampler import TICKS_PER_SUM, InputSampler
from lightning_gpuprof.capture.input.slots import SlotWriter, Table
from lightning_gpuprof.capture.input.worker import ProbedLoop
from lightning_gpuprof.model.journal import Sample

METHODS = ("fork", "spawn", "forkserver")


def loader(dataset: Any = None, **options: Any) -> DataLoader[Any]:
    plain: dict[str, Any] = {"batch_size": 4, "num_workers": 2, **options}
    if plain["num_workers"] and "multiprocessing_context" not in plain:
        plain["multiprocessing_context"] = "fork"
    return DataLoader(Images() if dataset is None else dataset, **plain)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """What files of ours there are, in a folder that no other process uses."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(Table.for_workers.__func__, "__defaults__", ((folder,),))  # type: ignore[attr-defined]
    return lambda: list(folder.iterdir())


KINDS: dict[str, Any] = {
    "map": lambda **o: loader(shuffle=True, **o),
    "getitems": lambda **o: loader(Together(), **o),
    "iterable": lambda **o: loader(Stream(), **o),
    "batch sampler": lambda **o: loader(
        Images(), batch_size=1, batch_sampler=BatchSampler(SequentialSampler(range(40)), 4, True), **o
    ),
    "no batches": lambda **o: loader(batch_size=None, **o),
    "subset": lambda **o: loader(Subset(Images(), range(20)), **o),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_random_numbers_are_those_without_us(kind: str, workers: int) -> None:
    without = batches(KINDS[kind](num_workers=workers), epochs=2)
    measured = KINDS[kind](num_workers=workers)
    with Measured(measured) as found:
        ours = batches(measured, epochs=2)
    assert same(ours, without)
    assert found.errors == []
    assert found.measured_batches() >= 10


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


def test_an_iterator_made_by_another_thread_is_left_alone() -> None:
    measured = loader()
    with Measured(measured) as found:
        thread = threading.Thread(target=lambda: batches(measured))
        thread.start()
        thread.join()
    assert found.values == {}


# Nothing is changed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_and_dataset_hold_what_they_held(workers: int) -> None:
    dataset = Images()
    transforms = dataset.transform.transforms
    measured = loader(dataset, num_workers=workers)
    pickled, held = pickle.dumps(dataset), set(vars(measured))
    with Measured(measured):
        iterator = iter(measured)
        next(iterator)
        assert type(measured) is DataLoader
        assert set(vars(measured)) == held
        assert measured.dataset is dataset
        assert dataset.transform.transforms is transforms
        assert pickle.dumps(dataset) == pickled
        assert "_worker_loop" not in repr(torch_worker._worker_loop.__class__)
        assert not isinstance(torch_worker._worker_loop, ProbedLoop)
    del iterator


def test_torch_is_as_it_was_afterwards() -> None:
    before = (vars(DataLoader)["_get_iterator"], torch_worker._worker_loop, fetch._MapDatasetFetcher)
    measured = loader(num_workers=0)
    with Measured(measured):
        iterator = iter(measured)
        next(iterator)
    assert (vars(DataLoader)["_get_iterator"], torch_worker._worker_loop, fetch._MapDatasetFetcher) == before
    assert type(iterator._dataset_fetcher) is fetch._MapDatasetFetcher
    assert len(list(iterator)) == 9


def test_no_file_is_left_once_workers_have_begun_nor_at_the_end(files: Callable[[], list[Path]]) -> None:
    measured = loader()
    with Measured(measured) as found:
        iterator = iter(measured)
        assert len(files()) == 1
        list(iterator)
        found.sampler.sample(0)
        assert files() == []
    assert files() == []


@pytest.mark.parametrize(("more", "at_the_end"), [(False, []), (True, ["loader0.process"])])
def test_no_sum_is_written_twice_at_the_end(more: bool, at_the_end: list[str]) -> None:
    """Where the last look was one that writes sums; what came after it is written with a time of its own."""
    workers, inside = loader(), loader(num_workers=0)
    with Measured(inside, workers) as found:
        sampler = InputSampler(found.measurement.iterators, now=lambda: 11)
        batches(inside)
        batches(workers)
        looks = [one for t_ns in range(1, TICKS_PER_SUM + 1) for one in sampler.sample(t_ns)]
        if more:
            batches(inside)
        closing = sampler.close()
    sums = [one for one in (*looks, *closing) if isinstance(one, Sample) and not one.subject.endswith(".queue")]
    assert {one.subject for one in sums} >= {"loader0.process", "loader1.worker0", "loader1.worker1"}
    assert len({(one.t_ns, one.subject) for one in sums}) == len(sums)
    ended = [one.subject for one in sums if one.t_ns == 11]
    assert [subject for subject in ended if ":" not in subject] == at_the_end


def test_what_stands_in_for_the_worker_loop_pickles_as_its_class_and_a_path() -> None:
    copied = pickle.loads(pickle.dumps(ProbedLoop("/nowhere", torch_worker._worker_loop)))
    assert type(copied) is ProbedLoop
    assert copied._loop is None


class Opened(Stream):
    """Says when its generator is closed."""

    def __init__(self, closed: list[str]) -> None:
        super().__init__()
        self.closed = closed

    def __iter__(self) -> Any:
        try:
            yield from super().__iter__()
        finally:
            self.closed.append("closed")


@pytest.fixture
def no_collector() -> Any:
    """Only what nobody refers to goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("ended", ["before", "after"])
def test_a_generator_in_the_training_process_closes_as_soon_as_its_iterator_is_gone(
    ended: str, no_collector: None
) -> None:
    closed: list[str] = []
    measured = loader(Opened(closed), num_workers=0)
    with Measured(measured) as found:
        iterator = iter(measured)
        next(iterator)
        if ended == "before":
            found.measurement.end()
        del iterator
        assert closed == ["closed"]


def test_dataset_and_transforms_go_with_their_loader(no_collector: None) -> None:
    dataset = Images()
    gone = [weakref.ref(dataset), weakref.ref(dataset.transform), weakref.ref(dataset.transform.transforms[0])]
    measured = loader(dataset, num_workers=0)
    del dataset
    with Measured(measured) as found:
        iterator = iter(measured)
        next(iterator)
        found.loaders = ()
        del iterator, measured
        assert [one() for one in gone] == [None, None, None]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_second_iterator_does_not_end_the_measurement_of_the_first(workers: int, kept: bool) -> None:
    measured = loader(Images(40, nap_s=0.002), num_workers=workers)
    with Measured(measured) as found:
        iterator = iter(measured)
        next(iterator)
        other = iter(measured)
        next(other)
        if not kept:
            del other
        found.sampler.sample(0)
        list(iterator)
        found.sampler.sample(0)
    assert found.measured_batches() >= 11


# Failures of the user's code ------------------------------------------------------------------------------------------


def fails_in_worker_init(worker: int) -> None:
    raise OSError("no init")


def fails_in_collate(items: list[Any]) -> Any:
    raise KeyError("no collation")


class FailingTransform:
    def __call__(self, item: Any) -> Any:
        raise TypeError("no transform")


def failing_transform() -> Images:
    dataset = Images()
    dataset.transform = Compose([Nap(0.0), FailingTransform()])
    return dataset


class FailingStream(Stream):
    def __iter__(self) -> Any:
        yield torch.zeros(2)
        raise RuntimeError("no more")


FAILURES: dict[str, Any] = {
    "item": lambda **o: loader(Images(fails_at=9), **o),
    "init": lambda **o: loader(worker_init_fn=fails_in_worker_init, **o),
    "collate": lambda **o: loader(collate_fn=fails_in_collate, **o),
    "transform": lambda **o: loader(failing_transform(), **o),
    "stream": lambda **o: loader(FailingStream(), **o),
}


def error_of(made: DataLoader[Any]) -> BaseException:
    try:
        batches(made)
    except Exception as error:
        return error.with_traceback(None)  # which would keep the iterator with its workers
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("what", "method"),
    [
        *((what, "fork") for what in FAILURES),
        pytest.param("transform", "spawn", marks=pytest.mark.slow),
        pytest.param("init", "forkserver", marks=pytest.mark.slow),
    ],
)
def test_an_error_in_a_worker_has_the_same_type_and_text_as_without_us(what: str, method: str) -> None:
    without = error_of(FAILURES[what](multiprocessing_context=method))
    measured = FAILURES[what](multiprocessing_context=method)
    with Measured(measured):
        ours = error_of(measured)
    assert type(ours) is type(without)
    assert str(ours) == str(without)
    assert "lightning_gpuprof" not in str(ours)


def test_an_error_in_the_training_process_comes_through_and_leaves_the_transforms_alone() -> None:
    dataset = failing_transform()
    transforms = dataset.transform.transforms
    measured = loader(dataset, num_workers=0)
    with Measured(measured) as found, pytest.raises(TypeError, match="no transform"):
        next(iter(measured))
    assert dataset.transform.transforms is transforms
    assert found.errors == []


class Killer(Images):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_killed_worker_is_told_of_as_without_us() -> None:
    for ours in (False, True):
        measured = loader(Killer())
        with (
            Measured(*([measured] if ours else [])),
            pytest.raises(RuntimeError, match=r"DataLoader worker \(pid"),
        ):
            batches(measured)


class Unpicklable(Images):
    def __init__(self) -> None:
        super().__init__()
        self.function = lambda: None


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_what_cannot_be_sent_to_a_spawned_worker_fails_as_without_us_and_torch_is_whole(
    files: Callable[[], list[Path]],
) -> None:
    own = torch_worker._worker_loop
    without = error_of(loader(Unpicklable(), multiprocessing_context="spawn"))
    measured = loader(Unpicklable(), multiprocessing_context="spawn")
    with Measured(measured) as found:
        ours = error_of(measured)
        assert torch_worker._worker_loop is own
        assert files() == []
        assert found.measurement.iterators == []
    assert (type(ours), str(ours)) == (type(without), str(without))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_no_file_is_left_if_making_an_iterator_is_broken_off(
    error: type[BaseException], files: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = error("broken off")
    seen: list[int] = []

    def broken_off(made: DataLoader[Any]) -> Any:
        seen.append(len(files()))
        raise raised

    monkeypatch.setattr(DataLoader, "_get_iterator", broken_off)
    measured = loader()
    with Measured(measured) as found:
        with pytest.raises(error) as caught:
            iter(measured)
        assert caught.value is raised
        assert seen == [1]
        assert files() == []
        assert found.errors == []


def test_a_loader_inside_a_forked_workers_dataset_does_not_remove_the_file_of_all_workers() -> None:
    found = measured_run(loader(LoaderInside(16), num_workers=2))
    assert found.count("loader0.worker0", "batches_count") == found.count("loader0.worker1", "batches_count") == 2


class LoaderInside(Images):
    """Reads through a DataLoader of its own."""

    def __getitem__(self, index: int) -> torch.Tensor:
        (part,) = DataLoader(torch.arange(12.0), batch_size=12)
        return super().__getitem__(index) + part.sum()


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


# Failures of ours -----------------------------------------------------------------------------------------------------


def test_a_worker_without_its_memory_works_unmeasured(tmp_path: Path) -> None:
    measured = loader()
    without = batches(loader())
    with Measured(measured) as found:
        found.measurement._install_probe(measured)  # as if the file were gone when the workers come to open it
        found.measurement._next.table.remove_file()
        iterator_of = vars(DataLoader)["_get_iterator"].__closure__
        assert iterator_of
        own = torch_worker._worker_loop
        assert isinstance(own, ProbedLoop)
        found.measurement._loop, loop = None, found.measurement._loop
        found.measurement._undo, undo = None, found.measurement._undo
        try:
            assert same(batches(measured), without)
        finally:
            torch_worker._worker_loop = loop
            found.measurement._undo = undo


def test_another_loop_in_torchs_place_is_left_there_and_said() -> None:
    own = torch_worker._worker_loop

    def theirs(*arguments: Any) -> None:
        own(*arguments)

    measured = loader()
    torch_worker._worker_loop = theirs
    try:
        found = measured_run(measured)
    finally:
        torch_worker._worker_loop = own
    assert found.values == {}
    assert len(found.notices) == 1


# Finding transforms ---------------------------------------------------------------------------------------------------


def test_transforms_are_found_in_datasets_inside_datasets() -> None:
    nested = Images(8)
    nested.transform = Compose((Compose([negative]), Nap(0.0)))
    measured = loader(ConcatDataset([Subset(Images(8), range(4)), nested]), num_workers=0, batch_size=6)
    found = measured_run(measured)
    assert found.count("loader0.transform:negative", "calls_count") > 0
    assert found.count("loader0.transform:Compose > negative", "calls_count") > 0
    assert type(nested.transform.transforms) is tuple


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", [ShuffledCompose, RenewedCompose, AliasedCompose])
def test_transforms_that_are_changed_in_place_stay_as_the_users_code_left_them(kind: Any, workers: int) -> None:
    def made() -> Images:
        dataset = Images(40)
        dataset.transform = kind([Add(1.0), negative, Nap(0.002), Add(10.0)])
        return dataset

    datasets = made(), made()
    without = batches(loader(datasets[0], num_workers=workers), epochs=2)
    measured = loader(datasets[1], num_workers=workers)
    with Measured(measured) as found:
        ours = batches(measured, epochs=2)
    assert same(ours, without)
    assert found.errors == []
    left = [[getattr(one, "number", type(one).__name__) for one in d.transform.transforms] for d in datasets]
    assert left[0] == left[1]
    assert type(datasets[1].transform.transforms) is list


def test_times_go_to_the_transform_and_not_to_its_place_in_the_list() -> None:
    dataset = Images(24)
    dataset.transform = ShuffledCompose([Nap(0.004), negative])
    found = measured_run(loader(dataset, num_workers=0))
    calls = found.count("loader0.transform:Nap", "calls_count")
    assert found.count("loader0.transform:negative", "calls_count") == calls >= 4
    assert found.count("loader0.transform:Nap", "sum_s") >= calls * 0.004


def test_a_slot_keeps_names_of_many_parts() -> None:
    writer = slots.SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    for number in range(100):
        writer.add_to_part(writer.part(slots.REGION, f"región {number}"), 5)
    memory = bytearray(slots.SLOT_BYTES)
    memory[: slots.SLOT_BYTES] = writer.words.tobytes() + bytes(writer._names).ljust(
        slots.SLOT_BYTES - writer.words.nbytes, b"\0"
    )
    found = slots.read_slot(memoryview(memory))
    assert len(found.parts) == slots.MAX_PARTS
    assert found.parts[slots.REGION, "región 0"].calls == 1
    assert sum(part.calls for part in found.parts.values()) == 100


def test_long_names_of_parts_keep_their_ends_and_those_that_agree_add_up() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    writer = slots.SlotWriter(memory)
    inside = "RandomApply > " * 5
    names = [f"{inside}Crop", f"{inside}Flip", f"a{inside}Flip", "é" * 40]
    for number, name in enumerate(names):
        writer.add_to_part(writer.part(slots.TRANSFORM, name), 5 + number)
    found = slots.read_slot(memory)
    assert sorted((part.name[-4:], part.calls, part.sum_ns, part.max_ns) for part in found.parts.values()) == [
        ("Crop", 1, 5, 5),
        ("Flip", 2, 13, 7),
        ("éééé", 1, 8, 8),
    ]
    assert all(part.name.startswith("…") for part in found.parts.values())


def test_parts_that_a_reader_cannot_tell_apart_add_up() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    writer = slots.SlotWriter(memory)
    for number in range(slots.MAX_PARTS):
        writer.add_to_part(writer.part(slots.REGION, "others" if number == 3 else f"region {number}"), 5)
    found = slots.read_slot(memory)
    assert found.parts[slots.REGION, "others"].calls == 2
    assert sum(part.calls for part in found.parts.values()) == slots.MAX_PARTS


def test_the_search_for_transforms_counts_as_cost() -> None:
    clock = iter(range(0, 10**9, 100_000))
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    probe = Probe(slots.SlotWriter(memory), Images(), now=lambda: next(clock))
    probe.begin()  # 100 us
    probe.collate()
    probe.end(0, False)  # 100 us
    found = slots.read_slot(memory)
    assert found.counters[slots.OWN_NS] >= 200_000


def test_buckets_hold_what_falls_into_them() -> None:
    for ns in (1, 255, 256, 300, 1000, 12_345, 10**6, 10**9, 10**11):
        bucket = slots.bucket_index(ns)
        assert ns <= slots.bucket_end_ns(bucket) <= max(256, 1.25 * ns) + 1 or bucket == slots.BUCKETS - 1


def test_a_reader_does_not_take_a_slot_in_the_middle_of_a_write() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    slots.SlotWriter(memory).words[slots.SEQUENCE] = 1
    assert slots.read_slot(memory) is None


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


OWN_KINDS = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_is_its_own_again_at_the_end(workers: int) -> None:
    measured = loader(num_workers=workers)
    with Measured(measured) as found:
        iterator = iter(measured)
        next(iterator)
        during = type(iterator)
    assert type(iterator) is not during
    assert type(iterator) is OWN_KINDS[bool(workers)]
    assert during.__name__ == type(iterator).__name__
    assert len(list(iterator)) == 9
    assert found.errors == []


class Clock:
    def __init__(self) -> None:
        self.ns = 1_000

    def __call__(self) -> int:
        return self.ns


def measured_of(batches: int, *, item_us: float, collate_us: float) -> int:
    """How many batches are measured of so many."""
    clock = Clock()
    writer = SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    probe = Probe(writer, None, now=clock)
    for _ in range(batches):
        if probe.armed:
            probe.begin()
            for _ in range(16):
                probe.moment(clock.ns)
                clock.ns += int(item_us * 1e3)
            probe.collate()
            clock.ns += int(collate_us * 1e3)
        else:
            probe.start()
        probe.end(0, False)
    measured = writer.words[slots.MEASURED]
    assert writer.words[slots.BATCHES] == batches
    writer.release()
    return measured


@pytest.mark.parametrize(("item_us", "collate_us"), [(2000.0, 10.0), (2.0, 25_000.0)])
def test_batches_that_take_long_are_all_measured(item_us: float, collate_us: float) -> None:
    """Be it their items or their collation."""
    assert measured_of(50, item_us=item_us, collate_us=collate_us) == 50


def test_quick_batches_are_sampled() -> None:
    assert MIN_BATCHES <= measured_of(100, item_us=0.1, collate_us=2.0) <= 20
    assert measured_of(1000, item_us=2.0, collate_us=10.0) <= 50


def test_of_every_batch_the_time_is_known_although_few_are_measured() -> None:
    """Every tenth batch opens a file: 5 ms instead of 50 us."""
    clock = Clock()
    writer = SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    probe = Probe(writer, None, now=clock)
    spent_ns = 0
    for number in range(400):
        clock.ns += 30_000  # the step
        begun_ns = clock.ns
        if probe.armed:
            probe.begin()
            probe.moment(clock.ns)
            clock.ns += 50_000 if number % 10 else 5_000_000
            probe.collate()
        else:
            probe.start()
            clock.ns += 50_000 if number % 10 else 5_000_000
        probe.end(0, False)
        spent_ns += clock.ns - begun_ns
    words = writer.words
    assert (words[slots.BATCHES], words[slots.MADE_NS]) == (400, spent_ns)
    assert (words[slots.IDLE_COUNT], words[slots.IDLE_NS]) == (399, 399 * 30_000)
    assert words[slots.MEASURED] <= 80
    writer.release()
