"""Tables as files of comma-separated values: what a spreadsheet or a script reads back."""

import csv
import json
from pathlib import Path

import msgspec
import pytest
import sample_report

from lightning_gpuprof.errors import ArgumentError, ReportError
from lightning_gpuprof.sinks import tables
from lightning_gpuprof.sinks.csv_tables import write_csv, write_rows_csv
from lightning_gpuprof.sinks.tables import FIGURE, TEXT, US, Column, Format, Table, bar


def column(index: int, title: str, shown: Format) -> Column[tuple[str, ...]]:
    return Column(title, lambda row: row[index], shown)


def table(*rows: tuple[str, ...], title: str = "Some table", columns: tuple[tuple[str, Format], ...] = ()) -> Table:
    columns = columns or tuple((f"c{number}", TEXT) for number in range(len(rows[0])))
    return Table.of(title, rows, *(column(index, *of) for index, of in enumerate(columns)), absent="There is nothing.")


def read(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def written(tmp_path: Path, one: Table) -> list[list[str]]:
    (path,) = write_csv([one], tmp_path)
    return read(path)


def test_the_header_has_titles_with_units_and_bars_are_left_out(tmp_path: Path) -> None:
    columns: tuple[Column[str], ...] = (
        Column("kernel", lambda name: name, help="explained elsewhere"),
        bar(lambda _: 0.5),
        Column("total", lambda _: 12.3, US),
    )
    assert written(tmp_path, Table.of("t", ["gemm"], *columns)) == [
        ["kernel", "total (us)"],
        ["gemm", "12.3"],
    ]


def test_numbers_are_such_that_programs_can_read_them(tmp_path: Path) -> None:
    columns = (("n", FIGURE),)
    texts = ["1,234,567.8", "-", "-3.5", "+12.3 %", "<0.001", "4.46e-07", "12 to 13"]
    expected = ["1234567.8", "", "-3.5", "+12.3 %", "<0.001", "4.46e-07", "12 to 13"]
    assert [row[0] for row in written(tmp_path, table(*((text,) for text in texts), columns=columns))[1:]] == expected


def test_separators_quotes_and_lines_inside_of_names_come_back(tmp_path: Path) -> None:
    names = ["void f<int, float>(char*)", 'say "hi"', "two\nlines", "x\r\ny\rz", " spaces ", "größe ✓", "1,234", ""]
    rows = written(tmp_path, table(*((name, "x") for name in names)))
    assert [row[0] for row in rows[1:]] == names


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-x", "--"])
def test_a_text_that_would_be_a_formula_gets_an_apostrophe(tmp_path: Path, text: str) -> None:
    one = table((text, text), columns=((text, TEXT), ("n", FIGURE)))
    assert written(tmp_path, one) == [[f"'{text}", "n"], [f"'{text}", f"'{text}"]]


@pytest.mark.parametrize("text", ["-", "-5", "+5.25", "-3.5 %", "a=1", "<built-in method>", "'quoted"])
def test_other_texts_stay(tmp_path: Path, text: str) -> None:
    assert written(tmp_path, table((text,)))[1:] == [[text]]


def test_files_are_named_by_titles_and_never_alike(tmp_path: Path) -> None:
    titles = ["Idle time: GPU 0", "Idle time (GPU 0)", "Überblick / µs", "***", "", "x" * 300, "idle_time_gpu_0_2"]
    paths = write_csv([table((title,), title=title) for title in titles], tmp_path / "new" / "folder")
    assert [path.name for path in paths][:5] == [
        "idle_time_gpu_0.csv",
        "idle_time_gpu_0_2.csv",
        "uberblick_s.csv",
        "table.csv",
        "table_2.csv",
    ]
    assert len({path.name for path in paths}) == len(titles) == len(list((tmp_path / "new" / "folder").iterdir()))
    assert [read(path)[1] for path in paths] == [[title] for title in titles]
    assert max(len(path.name) for path in paths) < 100


def test_a_table_without_rows_has_its_header(tmp_path: Path) -> None:
    assert written(tmp_path, table(columns=(("a", TEXT),))) == [["a"]]


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    write_csv([table(("old",), ("older",))], tmp_path)
    assert written(tmp_path, table(("new",))) == [["c0"], ["new"]]
    assert len(list(tmp_path.iterdir())) == 1


def test_all_tables_of_a_report_can_be_written(tmp_path: Path) -> None:
    report = sample_report.full_report()
    of_report = [tables.wall_table(report), tables.phase_table(report), tables.device_table(report)]
    for one, path in zip(of_report, write_csv(of_report, tmp_path), strict=True):
        rows = read(path)
        assert len(rows) == 1 + len(one.rows)
        assert {len(row) for row in rows} == {sum(not column.bar for column in one.columns)}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"cannot create .*file"):
        write_csv([table(("a",))], tmp_path / "file" / "folder")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    kernel: str
    total_us: float
    count: int
    known: bool = True
    share_ratio: float | None = None
    grid: tuple[int, int, int] = (1, 1, 1)
    parts: tuple[Part, ...] = ()
    causes_us: dict[str, float] = {}


def test_rows_keep_every_digit(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    row = Row(
        kernel="a, b",
        total_us=1234567.0000000002,
        count=2**60,
        grid=(1, 2, 3),
        parts=(Part(name='x "y"'),),
        causes_us={"data": 0.1},
    )
    write_rows_csv([row, Row(kernel="=c", total_us=-0.5, count=-1, known=False, share_ratio=1e-9)], path)
    header, first, second = read(path)
    assert header == ["kernel", "total_us", "count", "known", "share_ratio", "grid", "parts", "causes_us"]
    assert first[:5] == ["a, b", "1234567.0000000002", str(2**60), "true", ""]
    assert [json.loads(text) for text in first[5:]] == [[1, 2, 3], [{"name": 'x "y"'}], {"data": 0.1}]
    assert second == ["'=c", "-0.5", "-1", "false", "1e-09", "[1,1,1]", "[]", "{}"]
    assert float(first[1]) == row.total_us


def test_without_rows_the_file_is_empty(tmp_path: Path) -> None:
    write_rows_csv([], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_bytes() == b""


def test_rows_of_several_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="rows must all be of one class, got 'Row, Part'"):
        write_rows_csv([Row(kernel="a", total_us=1, count=1), Part(name="b")], tmp_path / "rows.csv")
    assert list(tmp_path.iterdir()) == []
