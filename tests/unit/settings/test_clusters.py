"""Sections `clusters.NAME`: what a cluster does not say is the general part's, but no two share a place."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from offsetstream.cli.main import main
from offsetstream.errors import UsageError
from offsetstream.settings.config_file import OWN_FOLDERS, ConfigFile
from offsetstream.settings.schema import settings_of
from offsetstream.stream.settings import JobSettings
from testkit.processes import leaves
from tests.unit.settings.support import invoke, show, write

SETTINGS = """
tables = "/lake"
bootstrap-server = "general:1"
[kafka]
security.protocol = "SSL"
client.id = "general"
[run]
trigger = "3 seconds"
checkpoint = "/checkpoints"
conf = { a = "1", b = "1" }
[groups.list]
type = ["Share"]
[clusters.eu]
bootstrap-server = "eu:1"
[clusters.eu.kafka]
client.id = "eu"
[clusters.eu.run]
trigger = "5 seconds"
conf = { b = "2" }
[clusters.eu.groups.list]
type = ["Streams"]
[clusters."us.east-1"]
tables = "/us"
[clusters."us.east-1".run]
checkpoint = "/us-checkpoints"
"""


def test_a_cluster_wins_over_the_general_part(tmp_path: Path) -> None:
    file = write(tmp_path, SETTINGS)
    here, general, eu = ("--config", file), f"file {file}", f"file {file} [clusters.eu]"
    shown = show("run", *here, "--cluster", "eu")
    assert shown["bootstrap-server"] == ("eu:1", eu)
    assert shown["trigger"] == ("5 seconds", eu)
    assert (shown["conf.a"], shown["conf.b"]) == (("1", general), ("2", eu))
    assert (shown["kafka.security.protocol"], shown["kafka.client.id"]) == (("SSL", general), ("eu", eu))
    assert shown["tables"] == ("/lake/eu", f"{eu}: the cluster's subfolder of the general tables")
    assert shown["checkpoint"] == ("/checkpoints/eu", f"{eu}: the cluster's subfolder of the general checkpoint")
    assert show("groups", "list", *here, "--cluster", "eu")["type"] == ("Streams", eu)
    assert show("groups", "list", *here, "--cluster", "us.east-1")["type"] == ("Share", general)
    assert show("run", *here, "--cluster", "eu", "--tables", "/mine")["tables"] == ("/mine", "flag")
    assert show("run", *here)["tables"] == ("/lake", general)


def test_cluster_with_its_own_tables_and_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETSTREAM_CLUSTER", "us.east-1")
    shown = show("run", "--config", write(tmp_path, SETTINGS))
    assert (shown["tables"][0], shown["checkpoint"][0]) == ("/us", "/us-checkpoints")
    assert (shown["bootstrap-server"][0], shown["trigger"][0]) == ("general:1", "3 seconds")


def test_job_settings_load_the_same_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, SETTINGS)
    made = JobSettings.load(file, cluster="eu")
    assert (made.bootstrap_server, made.trigger, made.tables) == ("eu:1", "5 seconds", "/lake/eu")
    assert (made.conf, made.properties) == ({"a": "1", "b": "2"}, {"security.protocol": "SSL", "client.id": "eu"})
    monkeypatch.setenv("OFFSETSTREAM_CLUSTER", "us.east-1")
    assert JobSettings.load(file).tables == "/us"
    assert JobSettings.load(file, cluster="eu").tables == "/lake/eu"
    with pytest.raises(UsageError, match=r"there is no cluster eus: did you mean eu\?"):
        JobSettings.load(file, cluster="eus")


def test_the_general_folders_are_the_commands_defaults(tmp_path: Path) -> None:
    defaults = {each.name: each.default for each in settings_of(JobSettings)}
    assert {key: defaults[key] for key in OWN_FOLDERS} == OWN_FOLDERS
    shown = show("run", "--config", write(tmp_path, '[clusters.a]\nbootstrap-server = "a:1"\n'), "--cluster", "a")
    assert (shown["tables"][0], shown["checkpoint"][0]) == ("tables/a", "checkpoints/a")


def test_every_command_that_takes_a_file_takes_a_cluster() -> None:
    have_all = set()
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for path, each in leaves(command, [name]):
            flags = {flag for option in each.params for flag in option.opts}
            assert ("--config" in flags) == ("--cluster" in flags), path
            if "--all-clusters" in flags:
                have_all.add(".".join(path))
    assert {"groups.status", "lag", "offsets.list", "partitions", "coordinator", "run", "sql"} <= have_all
    assert not have_all & {"groups.delete", "offsets.reset", "offsets.undo", "verify", "maintain", "stop"}


TWO = "[clusters.a]\n{}\n[clusters.b]\n{}\n[clusters.a.run]\n{}\n[clusters.b.run]\n{}\n"
SAME = [
    (TWO.format('tables = "/x"', 'tables = "/x/"', "", ""), "have the same tables /x"),
    (TWO.format('tables = "s3://l/x"', 'tables = "s3a://l/x/"', "", ""), "have the same tables s3://l/x"),
    (TWO.format('tables = "file:///x%20y"', 'tables = "/z/../x y"', "", ""), "have the same tables file:///x%20y"),
    (TWO.format('tables = "k.b"', 'tables = "k.b"', "", ""), "have the same tables k.b"),
    (TWO.format("", 'tables = "tables/a"', "", ""), "have the same tables tables/a"),
    (TWO.format('tables = "/x"', "", "", 'tables = "/x"'), "have the same tables /x"),
    (TWO.format("", "", 'checkpoint = "/c"', 'checkpoint = "/c"'), "have the same checkpoint /c"),
    (TWO.format("", "", "metrics-port = 9400", "metrics-port = 9400"), "have the same metrics-port 9400"),
    (
        TWO.format('tables = "file://localhost/x"', 'tables = "FILE:///x"', "", ""),
        "have the same tables file://localhost/x",
    ),
    ("[run]\nmetrics-port = 9400\n" + TWO.format("", "", "", ""), "have the same metrics-port 9400"),
]


@pytest.mark.parametrize(("text", "words"), SAME)
def test_two_clusters_never_share_tables_checkpoints_or_port(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    refused = invoke("stop", "--config", file)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"Error: {file}: clusters a and b {words}: give each cluster its own\n"


def test_cluster_names_that_differ_by_case_only_are_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "[clusters.EU]\n[clusters.eu]\n")
    refused = invoke("stop", "--config", file)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == f"Error: {file}: the clusters EU and eu differ by case only: rename one of them\n"


def test_two_addresses_may_have_the_same_port(tmp_path: Path) -> None:
    ports = ('metrics-port = 9400\nmetrics-address = "127.0.0.2"', 'metrics-port = 9400\nmetrics-address = "127.0.0.3"')
    assert ConfigFile.read(write(tmp_path, TWO.format("", "", *ports))).clusters == ("a", "b")


def test_different_places_with_similar_names_are_allowed(tmp_path: Path) -> None:
    """A general place of `run` is none of a cluster's; nor is a catalog's schema a folder of that name."""
    text = '[run]\ntables = "/x"\ncheckpoint = "/c"\nmetrics-port = 0\n'
    text += TWO.format('tables = "k.b"', 'tables = "./k.b"', "metrics-port = 0", "metrics-port = 0")
    assert ConfigFile.read(write(tmp_path, text)).clusters == ("a", "b")


WRONG = [
    ("", "there is no cluster eu: the file has no clusters"),
    ("[clusters.eu1]", "there is no cluster eu: did you mean eu1?"),
    ("[clusters.prod]\n[clusters.test]", "there is no cluster eu: known names are prod, test"),
    ("clusters = 5", "clusters must be a table, not a whole number"),
    ("[clusters]\neu = 5", "clusters.eu must be a table, not a whole number"),
    ("[clusters.eu]\ntabels = 'x'", "unknown key clusters.eu.tabels: did you mean tables?"),
    ("[clusters.eu.run]\ntabels = 'x'", "unknown key clusters.eu.run.tabels: did you mean tables?"),
    ("[clusters.eu.run]\ntrigger = 'often'", "run.trigger: 'often' is not a valid interval"),
    ("[clusters.eu.run]\ntrigger = 5", "clusters.eu.run.trigger must be a text, not a whole number"),
    ("[clusters.eu]\ntables = 5", "clusters.eu.tables must be a text, not a whole number"),
    ("[clusters.eu.kafka]\na = [1]", "clusters.eu.kafka.a must be a text, not a list"),
    ("[clusters.eu.clusters.x]", "unknown key clusters.eu.clusters: "),
    ("[clusters.eu.west]\ntables = 'x'", "unknown key clusters.eu.west: "),
    ("[clusters.'..']", "clusters.'..' is not a valid cluster name"),
    ("[clusters.'a/b']", "clusters.'a/b' is not a valid cluster name"),
    ("[clusters.'']", "clusters.'' is not a valid cluster name"),
    ("[clusters.'é']", "clusters.'é' is not a valid cluster name"),
    ("[clusters.-x]", "clusters.'-x' is not a valid cluster name"),
    ("tables = 'lake.kafka'\n[clusters.eu]", "clusters.eu needs its own tables: lake.kafka is a schema of a catalog"),
    (
        "command-config = 'x'\n[clusters.eu.kafka]\na = 'b'",
        "the general command-config would win over clusters.eu.kafka: give clusters.eu its own command-config",
    ),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_invalid_cluster_section_gives_one_line(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    refused = invoke("run", "--config", file, "--cluster", "eu", "--bootstrap-server", "a:1", "--max-silence", "0")
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert refused.stderr.startswith(f"Error: {file}: {words}")


def test_table_of_a_command_group_holds_only_subcommands(tmp_path: Path) -> None:
    file = write(tmp_path, "[clusters.eu.groups]\nx = 5")
    refused = invoke("groups", "list", "--config", file, "--cluster", "eu")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: {file}: unknown key clusters.eu.groups.x: known names are list")


def test_a_name_with_a_dot_has_to_be_quoted(tmp_path: Path) -> None:
    refused = invoke("stop", "--config", write(tmp_path, "[clusters.eu.west]\ntables = 'x'"))
    assert refused.stderr.endswith('; or quote it: [clusters."eu.west"]\n')


def test_cluster_needs_a_settings_file() -> None:
    refused = invoke("groups", "list", "--cluster", "eu")
    told = "Error: the cluster eu is a section of a settings file: name that file by --config\n"
    assert (refused.exit_code, refused.stderr) == (2, told)


def test_cluster_with_own_client_properties_needs_its_own_command_config(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("client.id=of-the-file\n")
    text = f"command-config = 'x'\n[clusters.eu]\ncommand-config = '{tmp_path}/own'\n[clusters.eu.kafka]\na = 'b'\n"
    made = JobSettings.load(write(tmp_path, text), cluster="eu", bootstrap_server="a:1")
    assert made.properties == {"client.id": "of-the-file", "a": "b"}
