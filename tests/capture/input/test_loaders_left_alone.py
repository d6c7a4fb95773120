"""Neither loaders nor what they make, nor how they fail, is changed by measuring them."""

import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Callable
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
    loader,
    measured_run,
    negative,
    same,
)
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SequentialSampler,
    Subset,
    dataloader,
)
from torch.utils.data._utils import fetch
from torch.utils.data._utils import worker as torch_worker

import lightning_gpuprof
from lightning_gpuprof.capture.input import slots, torch_private
from lightning_gpuprof.capture.input.sampler import TICKS_PER_SUM, InputSampler
from lightning_gpuprof.capture.input.worker import ProbedLoop
from lightning_gpuprof.model.journal import Sample


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """What files of ours there are, in a folder that no other process uses."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(slots, "SHARED_MEMORY", folder)
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


def test_an_iterator_made_by_another_thread_is_left_alone() -> None:
    measured = loader()
    with Measured(measured) as found:
        thread = threading.Thread(target=lambda: batches(measured))
        thread.start()
        thread.join()
    assert found.values == {}


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
    samples = [one for one in (*looks, *closing) if isinstance(one, Sample)]
    sums = [one for one in samples if not one.subject.endswith(".queue") and ".shapes:" not in one.subject]
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
    assert f"{Path(lightning_gpuprof.__file__).parent}{os.sep}" not in str(ours)


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


def test_a_loop_that_is_handed_its_dataset_in_a_list_as_from_torch_214_on_is_known() -> None:
    def loop(
        dataset_kind: Any, dataset_holder: Any, index_queue: Any, data_queue: Any, base_seed: Any, worker_id: Any
    ) -> None:
        """Its arguments are what is looked at."""

    loop.__module__, loop.__qualname__ = torch_worker.__name__, "_worker_loop"
    places = torch_private.loop_arguments(loop)
    assert places is not None
    assert places.data_queue == 3
    assert places.dataset_of((0, ["items"], None, None, 7, 1)) == "items"


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
