"""`--all-clusters` of look-ups: the rows of all, with a first column; one that cannot be read is told."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from offsetstream.cli.age import NOT_OK
from testkit.processes import Done, within
from testkit.tables import append_rows, new_tables
from tests.unit.cli.conftest import PARTITIONS, commit, group, write_states

NAMES = ("main", "eu.west")  # one as DuckDB calls its schema, one with a dot
NOW = datetime.now(UTC)
HELD = {"main": {"app": 100, "only-here": 1}, "eu.west": {"app": 7}}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of three clusters, of which one has no tables."""
    folder = tmp_path_factory.mktemp("clusters")
    for name, held in HELD.items():
        root = folder / "tables" / name
        new_tables(root)
        write_states(root, ["OWNED"] * PARTITIONS)
        append_rows(root, "groups", [group(each, "Classic", "Empty", 0) for each in held])
        append_rows(root, "committed_offsets", [commit(each, "t", 0, offset) for each, offset in held.items()])
    text = f'tables = "{folder}/tables"\n' + "".join(f'[clusters."{name}"]\n' for name in NAMES)
    (folder / "two.toml").write_text(text)
    (folder / "three.toml").write_text(f"{text}[clusters.gone]\n")
    return folder


def ask(settings: Path, *arguments: str, file: str = "two.toml") -> Done:
    return within(*arguments, "--config", str(settings / file), "--all-clusters")


def test_text_has_a_first_column(settings: Path) -> None:
    done = ask(settings, "groups", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "CLUSTER    GROUP           TYPE                 STATE",
        "main       app             Classic              Empty",
        "main       only-here       Classic              Empty",
        "eu.west    app             Classic              Empty",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "list"),
        ("groups", "describe", "--all-groups"),
        ("groups", "status", "--fail-on", "never"),
        ("lag", "--all-groups"),
        ("offsets", "list"),
        ("offsets", "expiring", "--kept"),
        ("sql", "SELECT * FROM committed_offsets"),
    ],
)
def test_json_and_csv_have_it_too(settings: Path, words: tuple[str, ...]) -> None:
    found = json.loads(ask(settings, *words, "--output", "json").stdout)
    assert {next(iter(row)) for row in found} == {"cluster"}
    assert {(row["cluster"], row.get("group", row.get("group_id"))) for row in found} == {
        (name, each) for name, held in HELD.items() for each in held
    }
    rows = list(csv.DictReader(io.StringIO(ask(settings, *words, "--output", "csv").stdout)))
    assert sorted(row["cluster"] for row in rows) == sorted(row["cluster"] for row in found)


def test_partitions_and_coordinators(settings: Path) -> None:
    found = json.loads(ask(settings, "partitions", "--output", "json").stdout)
    assert [(row["cluster"], row["offsets_partition"]) for row in found] == [
        (name, number) for name in NAMES for number in range(PARTITIONS)
    ]
    found = json.loads(ask(settings, "coordinator", "--group", "app", "--output", "json").stdout)
    assert [(row["cluster"], row["group"]) for row in found] == [(name, "app") for name in NAMES]


@pytest.mark.parametrize("words", [("offsets", "list"), ("lag", "--all-groups"), ("sql", "FROM committed_offsets")])
def test_an_unreadable_cluster_is_reported_and_the_others_are_shown(settings: Path, words: tuple[str, ...]) -> None:
    done = ask(settings, *words, "--output", "json", file="three.toml")
    assert done.returncode == 1
    assert {row["cluster"] for row in json.loads(done.stdout)} == set(NAMES)
    told = [line for line in done.stderr.splitlines() if "Error" in line]
    assert len(told) == 1
    assert told[0].startswith(f"gone: Error: there is no table {settings}/tables/gone/")


def test_the_exit_code_is_the_worst_of_the_clusters(settings: Path, tmp_path: Path) -> None:
    """Trouble that is known comes before an answer that failed."""
    root = tmp_path / "tables" / "unwell"
    new_tables(root)
    write_states(root, ["OWNED"] * PARTITIONS)
    append_rows(root, "committed_offsets", [commit("app", "t", 0, 100, log_id=0)])
    append_rows(root, "offset_commits", [commit("app", "t", 0, 100, log_id=0, record_timestamp=NOW)])
    append_rows(root, "topic_partitions", [{"topic": "t", "partition": 0, "high_watermark": 200, "sampled_at": NOW}])
    append_rows(root, "end_offsets", [{"topic": "t", "partition": 0, "high_watermark": 200, "sampled_at": NOW}])
    file = tmp_path / "clusters.toml"
    text = "".join(f'[clusters."{name}"]\ntables = "{settings}/tables/{name}"\n' for name in (*NAMES, "gone"))
    for clusters, code in [(text, 1), (f'{text}[clusters.unwell]\ntables = "{root}"\n', NOT_OK)]:
        file.write_text(clusters)
        command = ("groups", "status", "--config", str(file), "--all-clusters")
        assert within(*command).returncode == code
    for output in ("json", "csv", "text"):
        assert "unwell" in within(*command, "--limit", "1", "--output", output).stdout.replace("unwell: ", "")


def test_a_missing_group_is_reported_with_its_cluster(settings: Path) -> None:
    done = ask(settings, "offsets", "list", "--group", "only-here")
    assert (done.returncode, done.stderr) == (1, "eu.west: Error: group 'only-here' is not there\n")
    assert done.stdout.splitlines()[1].startswith("main       only-here ")


def test_closings_name_their_cluster(settings: Path) -> None:
    done = ask(settings, "lag", "--all-groups")
    assert [line.partition(": The lag of ")[0] for line in done.stdout.splitlines()[-2:]] == ["main", "eu.west"]


def test_sql_compares_clusters(settings: Path) -> None:
    query = """SELECT group_id, m.committed_offset - e.committed_offset AS ahead
               FROM committed_offsets AS m JOIN committed_offsets AS e USING (group_id, topic, partition)
               WHERE m.cluster = 'main' AND e.cluster = 'eu.west'"""
    done = ask(settings, "sql", query, "--output", "json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, "", [{"group_id": "app", "ahead": 93}])
    done = ask(settings, "sql", "SELECT cluster, count(*) AS n FROM lag GROUP BY 1 ORDER BY 1", "--output", "csv")
    assert done.stdout.splitlines() == ["cluster,n", "eu.west,1", "main,2"]


@pytest.mark.parametrize("query", ["SELECT 1 AS groups", "SELECT 'main' AS cluster", "SELECT 1 FROM lagg"])
def test_a_word_that_is_also_a_table_needs_none_of_any_cluster(settings: Path, query: str) -> None:
    done = ask(settings, "sql", query, file="three.toml")
    assert "gone" not in done.stderr
    assert (done.returncode, "there is no table or view lagg" in done.stderr) == (int("lagg" in query),) * 2


@pytest.mark.parametrize("query", ["COPY groups TO '/nowhere'", "SELECT * FROM read_csv('/etc/passwd')"])
def test_sql_over_all_cannot_break_out(settings: Path, query: str) -> None:
    done = ask(settings, "sql", f"{query} -- groups")
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert done.returncode in {1, 2}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--tables", "x"), "--all-clusters takes --tables of each cluster from the file: remove --tables"),
        (("--cluster", "main"), "give --all-clusters or --cluster, not both"),
    ],
)
def test_all_clusters_refuses_options_of_one_cluster(settings: Path, more: tuple[str, ...], words: str) -> None:
    done = ask(settings, "groups", "list", *more)
    assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True)


def test_variables_are_of_one_cluster(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETSTREAM_CLUSTER", "main")
    assert len(ask(settings, "groups", "list").stdout.splitlines()) == 4
    monkeypatch.setenv("OFFSETSTREAM_TABLES", "x")
    for words in (("groups", "list"), ("sql", "FROM groups")):
        done = ask(settings, *words)
        assert (done.returncode, "remove OFFSETSTREAM_TABLES" in done.stderr) == (2, True)


def test_the_output_format_is_that_of_the_general_section(settings: Path) -> None:
    text = (settings / "two.toml").read_text()
    (settings / "mixed.toml").write_text(f'output = "json"\n{text}output = "csv"\n')
    done = ask(settings, "groups", "list", file="mixed.toml")
    assert [row["cluster"] for row in json.loads(done.stdout)] == ["main", "main", "eu.west"]


def test_without_clusters(tmp_path: Path) -> None:
    assert "name a settings file by --config" in within("groups", "list", "--all-clusters").stderr
    (tmp_path / "none.toml").write_text("")
    done = ask(tmp_path, "groups", "list", file="none.toml")
    assert (done.returncode, "none.toml has none" in done.stderr) == (2, True)


def test_it_can_be_watched(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(_: float) -> None:
        monkeypatch.setattr(time, "sleep", interrupt)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", second)
    done = ask(settings, "lag", "--all-groups", "--watch", "1")
    assert (done.returncode, done.stdout.count("CLUSTER")) == (0, 2)
