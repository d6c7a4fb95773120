"""What is installed, beside what importlib.metadata says."""

import json
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from lightning_gpuprof.installed import EntryPoint, Installed


def test_versions_are_those_of_importlib_metadata() -> None:
    names = {found.metadata["Name"] for found in metadata.distributions()}
    assert len(names) > 50
    installed = Installed()
    versions = {name: metadata.version(name) for name in names}
    assert {name: installed.version(name) for name in names} == versions


def test_entry_points_are_those_of_importlib_metadata() -> None:
    groups = metadata.entry_points().groups
    assert {"console_scripts", "tensorboard_plugins"} <= groups
    installed = Installed()
    for group in groups:
        points = {point.name: point.value for point in metadata.entry_points(group=group)}
        found = {point.name: point.value for point in installed.entry_points(group)}
        assert found == {name: value.partition("[")[0].strip() for name, value in points.items()}, group


def test_the_first_folder_of_the_path_counts_and_one_that_is_absent_does_not(tmp_path: Path) -> None:
    for place, folder in (("a", "My_Pack.age-1.0.dist-info"), ("b", "my_pack_age-2.0-py3.11.egg-info"), ("b", "x-1")):
        (tmp_path / place / folder).mkdir(parents=True)
    points = tmp_path / "a" / "My_Pack.age-1.0.dist-info" / "entry_points.txt"
    points.write_text("# of ours\n[one]\nloads = json:loads [extra]\n\n[two]\nloads = json:dumps\n")
    installed = Installed([str(tmp_path / part) for part in ("absent", "a", "b")])
    assert (installed.version("my-pack-age"), installed.version("x")) == ("1.0", None)
    assert installed.entry_points("one") == [EntryPoint("loads", "json:loads")]
    assert installed.entry_points("one")[0].load() is json.loads


def test_packages_in_an_archive_are_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("zipped-3.0.dist-info/METADATA", "Name: zipped\nVersion: 3.0\n")
        written.writestr("zipped-3.0.dist-info/entry_points.txt", "[lightning_gpuprof.rules]\nown = json:loads\n")
    monkeypatch.syspath_prepend(str(archive))
    installed = Installed()
    assert (installed.version("zipped"), installed.version("absent")) == ("3.0", None)
    assert EntryPoint("own", "json:loads") in installed.entry_points("lightning_gpuprof.rules")


def test_the_folder_that_a_build_leaves_in_a_checkout_counts(tmp_path: Path) -> None:
    folder = tmp_path / "My_package.egg-info"
    folder.mkdir()
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: My-package\nVersion: 4.0\n")
    (folder / "entry_points.txt").write_text("[one]\nloads = json:loads\n")
    found = next(iter(metadata.distributions(path=[str(tmp_path)])))
    installed = Installed([str(tmp_path)])
    assert installed.version("my_package") == found.version == "4.0"
    assert installed.entry_points("one") == [EntryPoint("loads", "json:loads")]
