import csv
import io
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.cli.output import Block, Blocks, Column, Output, RereadParts, RereadRows, merge_blocks, sort_rows
from offsetstream.cli.text import printable
from offsetstream.errors import TablesError, UsageError

COLUMNS = (Column("group", "GROUP", 15), Column("lag", "LAG", 5), Column("hidden"), Column("client_id", "CLIENT-ID"))
ROWS: list[dict[str, Any]] = [
    {"group": "a", "lag": 3, "hidden": True, "client_id": "c"},
    {"group": "a-group-with-a-long-name", "lag": None, "hidden": False, "client_id": None},
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
BIDI = set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
HOSTILE = ["", " ", ",", '"', '""', "a\nb", "a\r\nb", "a\x00b", "null", "\ufeff", "grüppe 😀", "=1+1"]


def printed(output_format: str, capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    Output(output_format).table(COLUMNS, ROWS)
    return capsysbinary.readouterr().out.decode()


def test_text_has_columns_as_wide_as_their_longest_cell(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert printed("text", capsysbinary) == (
        "GROUP                    LAG   CLIENT-ID\na                        3     c\na-group-with-a-long-name -     -\n"
    )


def test_text_has_columns_of_a_least_width(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Output().table(COLUMNS, ROWS[:1])
    assert capsysbinary.readouterr().out == b"GROUP           LAG   CLIENT-ID\na               3     c\n"


def test_json_has_an_object_per_row(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    text = printed("json", capsysbinary)
    assert json.loads(text) == ROWS
    assert text.splitlines()[1] == '  {"group": "a", "lag": 3, "hidden": true, "client_id": "c"},'


def test_csv_has_a_header_and_tells_null_from_empty(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert printed("csv", capsysbinary) == (
        "group,lag,hidden,client_id\r\na,3,true,c\r\na-group-with-a-long-name,,false,\r\n"
    )
    Output("csv").table([Column("x"), Column("y")], [{"x": "", "y": None}])
    assert capsysbinary.readouterr().out == b'x,y\r\n"",\r\n'


def test_levels_sort_by_severity_and_a_heading_counts_before_a_name() -> None:
    columns = (Column("partition"), Column("place", "PARTITION", 9), Column("level", "LEVEL", 5, "level"))
    levels = ["WARN", "OK", "ERR", "UNKNOWN"]
    rows = [{"level": level, "place": place, "partition": 0} for level, place in zip(levels, "dbca", strict=True)]
    assert [row["level"] for row in sort_rows(columns, rows, "level:desc")] == ["ERR", "WARN", "UNKNOWN", "OK"]
    assert [row["place"] for row in sort_rows(columns, rows, "partition")] == [*"abcd"]


@pytest.mark.parametrize("output_format", ["text", "json", "csv"])
def test_rows_in_parts_are_printed_as_others(output_format: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    values = [None, True, False, 0, -17, 1.5, *HOSTILE, "-1", "-a", "@b", "plain", "ends =", "\uff1dx"]
    rows = [{"b": value, "a": f"row {number}"} for number, value in enumerate(values)]
    columns = (Column("a", "A"), Column("b", "B"), Column("missing", "C"))
    parts = [{"a": [row["a"] for row in some], "b": [row["b"] for row in some]} for some in (rows[:7], [], rows[7:])]
    for part in parts:
        part["missing"] = [None] * len(part["a"])
    Output(output_format).table(columns, rows)
    one_by_one = capsysbinary.readouterr().out
    Output(output_format).table(columns, RereadParts(lambda: iter(parts)))
    assert capsysbinary.readouterr().out == one_by_one


@pytest.mark.parametrize("output_format", ["text", "json", "csv"])
def test_no_rows(output_format: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Output(output_format).table([Column("x", "X")], [])
    assert capsysbinary.readouterr().out == {"text": b"X\n", "json": b"[]\n", "csv": b"x\r\n"}[output_format]


def test_each_block_follows_an_empty_line_and_has_its_own_widths(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    column = Column("x", "X", 2)
    blocks = [Block([column, Column("y", "Y")], [{"x": "long", "y": 1}]), Block([column], [{"x": "a"}])]
    Output().blocks(merge_blocks(blocks))
    assert capsysbinary.readouterr().out == b"\nX    Y\nlong 1\n\nX\na\n"


def test_blocks_by_column_are_as_those_by_row(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    values = [None, True, 0, -17, *HOSTILE, "plain", "x" * 30, "y" * 300]
    blocks = Blocks([Column("a", "A", 5), Column("hidden"), Column("b", "B")], {}, [1, 0, 3, len(values) - 4])
    blocks = replace(blocks, values={"a": values, "hidden": values, "b": values[::-1]})
    assert [len(list(block.rows)) for block in blocks.each()] == blocks.sizes
    Output().blocks([blocks])
    by_column = capsysbinary.readouterr().out
    for block in blocks.each():
        Output().blocks(merge_blocks([block]))
    assert capsysbinary.readouterr().out == by_column
    assert by_column.count(b"\n\nA ") == len(blocks.sizes) - 1


@pytest.mark.parametrize("output_format", ["text", "json", "csv"])
def test_the_first_rows_are_written_before_the_last_is_read(
    output_format: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    written = list[bytes]()

    def rows() -> Iterator[dict[str, Any]]:
        yield from ({"x": f"row {number}"} for number in range(20_000))
        written.append(capsysbinary.readouterr().out)

    Output(output_format).table([Column("x", "X")], RereadRows(rows))
    assert b"row 1" in written[-1]


def test_blocks_are_written_before_the_last_is_made(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    written = list[bytes]()

    def blocks() -> Iterator[Block]:
        yield from (Block([Column("x", "X")], [{"x": f"row {number}"}]) for number in range(20_000))
        written.append(capsysbinary.readouterr().out)

    Output().blocks(merge_blocks(blocks()))
    assert b"row 1" in written[-1]


def test_a_file_is_not_touched_if_there_is_nothing_to_write(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        raise TablesError("cannot read")
        yield {}

    (tmp_path / "file").write_text("before")
    with pytest.raises(TablesError):
        Output("csv", str(tmp_path / "file")).table([Column("x")], rows())
    assert (tmp_path / "file").read_text() == "before"


def test_control_characters_are_escaped(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    Output().table([Column("x", "X")], [{"x": "a\nb\x00\x1b[31m\tü😀"}])
    assert capsysbinary.readouterr().out.decode() == "X\na\\nb\\x00\\x1b[31m\\tü😀\n"


def test_a_very_long_cell_does_not_widen_its_column(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = [{"x": "g" * 32_767, "y": 1}, {"x": "h" * 250, "y": 2}, {"x": "i", "y": 3}]
    Output().table([Column("x", "X"), Column("y", "Y")], rows)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert [len(line) for line in lines] == [252, 32_767 + 2, 252, 252]
    assert [line.split() for line in lines[1:]] == [[row["x"], str(row["y"])] for row in rows]


@settings(max_examples=200)
@given(st.lists(st.text(), min_size=1))
def test_text_has_one_line_per_row_whatever_the_cells_hold(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    file = tmp_path_factory.getbasetemp() / "text"
    Output(file=str(file)).table([Column("a", "A"), Column("b", "B")], [{"a": cell, "b": "end"} for cell in cells])
    lines = file.read_bytes().decode().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    assert [line.endswith("end") for line in lines] == [False, *[True] * len(cells)]


@settings(max_examples=200)
@given(st.text())
def test_message_is_one_printable_line(text: str) -> None:
    shown = printable(f"Error: group '{text}' is not there.")
    assert shown.isprintable()
    assert shown.encode()


@given(st.lists(st.text(), min_size=1))
def test_json_has_one_line_per_row_for_every_reader(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    lines = written("json", values, tmp_path_factory.getbasetemp() / "json").decode().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("[", "]", len(values) + 2)
    assert all(not unicodedata.category(character).startswith("Cc") for line in lines for character in line)
    assert not BIDI & set("".join(lines))


def test_a_lone_surrogate_is_written_as_json_writes_it(tmp_path: Path) -> None:
    assert json.loads(written("json", ["\udcff"], tmp_path / "x"))[0]["a"] == "\udcff"
    assert written("csv", ["\udcff"], tmp_path / "x") == b"a,b\r\n\\udcff,1\r\n"


def written(output_format: str, values: list[str], file: Path, *, raw: bool = False) -> bytes:
    Output(output_format, str(file), raw=raw).table([Column("a"), Column("b")], [{"a": v, "b": 1} for v in values])
    return file.read_bytes()


@settings(max_examples=200)
@given(st.lists(TEXTS))
def test_any_text_survives_csv_and_json(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    parsed = list(csv.reader(io.StringIO(written("csv", values, file, raw=True).decode(), newline=""), strict=True))
    assert parsed == [["a", "b"], *([value, "1"] for value in values)]
    assert json.loads(written("json", values, file)) == [{"a": value, "b": 1} for value in values]


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", "-a", "+49 30"]


@pytest.mark.parametrize("value", FORMULAS)
def test_csv_has_no_formulas(value: str, tmp_path: Path) -> None:
    (_, (cell, _)) = csv.reader(io.StringIO(written("csv", [value], tmp_path / "x").decode(), newline=""))
    assert cell == f"'{value}"
    assert written("json", [value], tmp_path / "y") == written("json", [value], tmp_path / "z", raw=True)


def test_names_of_csv_columns_are_written_as_cells_are(tmp_path: Path) -> None:
    Output("csv", str(tmp_path / "f")).table([Column("a,b"), Column("=c")], [{"a,b": 1, "=c": 2}])
    assert (tmp_path / "f").read_bytes() == b'"a,b",\'=c\r\n1,2\r\n'


@pytest.mark.parametrize("value", ["-1", "-1.5", "1=1", "a-b", "", " ", "'=1", "10"])
def test_csv_does_not_change_values_that_are_no_formula(value: str, tmp_path: Path) -> None:
    assert written("csv", [value], tmp_path / "x") == written("csv", [value], tmp_path / "y", raw=True)
    Output("csv", str(tmp_path / "x")).table([Column("a"), Column("b")], [{"a": -1, "b": -1.5}])
    assert (tmp_path / "x").read_bytes() == b"a,b\r\n-1,-1.5\r\n"


def test_hostile_texts_survive_another_csv_reader(tmp_path: Path) -> None:
    values = [value for value in HOSTILE if "\x00" not in value]  # DuckDB's reader ends a text there
    file = tmp_path / "x.csv"
    written("csv", values, file, raw=True)
    columns = {"a": "VARCHAR", "b": "INTEGER"}
    found = duckdb.read_csv(str(file), header=True, columns=columns, delimiter=",", quotechar='"').fetchall()
    assert [row[0] or "" for row in found] == values


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot write .*/no/x: No such file or directory. Name another file"):
        Output("json", str(tmp_path / "no" / "x")).table(COLUMNS, ROWS)
