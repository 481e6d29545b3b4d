"""What a user says: by flags, the environment, a file and JobSettings, all of which are of one declaration."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.testing import CliRunner

from offsetstream.cli.main import main
from offsetstream.errors import UsageError
from offsetstream.maintenance.settings import MaintenanceSettings
from offsetstream.settings.schema import Setting, Settings, settings_of
from offsetstream.stream.settings import JobSettings
from tests.unit.settings.support import EACH, SERVER, invoke, show, write

JOB = Path(__file__).parents[3] / "streaming_jobs" / "materialize_offsets.py"


@pytest.mark.parametrize(("command", "setting"), EACH, ids=lambda value: getattr(value, "name", value))
def test_help_describes_every_setting_and_its_variable_follows_the_documented_rule(
    command: str, setting: Setting
) -> None:
    shown = CliRunner().invoke(main, [command, "--help"], terminal_width=500).output
    (about,) = re.findall(rf"(?<=\n)  --{setting.key} .*?\n(?=  -|\n)", shown, re.DOTALL)
    about = " ".join(about.split())
    assert setting.option.help in about
    assert setting.variable == f"OFFSETSTREAM_{setting.key.upper().replace('-', '_')}"
    assert setting.is_required == ("[required]" in about)


@pytest.mark.parametrize("declared", [JobSettings, MaintenanceSettings])
def test_only_client_properties_are_for_programs_only(declared: type[Settings]) -> None:
    names = {setting.name for setting in settings_of(declared)}
    assert get_type_hints(declared).keys() - names <= {"properties"}


# A setting; as it is in the file, in the environment, and as a flag; then what it is in these cases.
PRECEDENCE = [
    ("tables", '"/file"', "/environment", ["--tables", "/flag"], ["/file", "/environment", "/flag"]),
    ("once", "true", "false", ["--once"], [True, False, True]),
    ("group-filter", '"a.*"', "b|c", ["--group-filter", "d"], ["a.*", "b|c", "d"]),
    ("history", "false", "yes", ["--no-history"], [False, True, False]),
    ("coordinator", '"new"', "classic", ["--coordinator", "new"], ["new", "classic", "new"]),
    (
        "group-metrics",
        '"kminion"',
        "kafka-exporter",
        ["--group-metrics", "kminion"],
        ["kminion", "kafka-exporter", "kminion"],
    ),
    ("log-format", '"json"', "text", ["--log-format", "json"], ["json", "text", "json"]),
    ("load-by", '"raw"', "auto", ["--load-by", "spark"], ["raw", "auto", "spark"]),
    ("max-offsets-per-trigger", "3", "2", ["--max-offsets-per-trigger", "1"], [3, 2, 1]),
    ("max-silence", "0.5", "2", ["--max-silence", "inf"], [timedelta(seconds=30), timedelta(minutes=2), timedelta.max]),
    ("max-silence", "inf", "1e9", ["--max-silence", "0"], [timedelta.max, timedelta(minutes=1e9), timedelta(0)]),
    ("trigger", '"3 seconds"', "2 seconds", ["--trigger", " 1 second"], ["3 seconds", "2 seconds", "1 second"]),
    ("sample-interval", "3", "2.5", ["--sample-interval", "0"], [3.0, 2.5, 0.0]),
    ("bootstrap-server", '"a:1 ,b:1"', "b:2", ["--bootstrap-server", "c:3"], ["a:1,b:1", "b:2", "c:3"]),
    (
        "metrics-allowed-host",
        '["A.example.com", "b"]',
        "c d.",
        ["--metrics-allowed-host", "e", "--metrics-allowed-host", "f"],
        [("a.example.com", "b"), ("c", "d"), ("e", "f")],
    ),
    (
        "keep-history",
        '["4w", "group_history = 30 days"]',
        "90d offset_commits=1w",
        ["--keep-history", "1d"],
        [("28d", "group_history=30d"), ("90d", "offset_commits=7d"), ("1d",)],
    ),
    ("master", '"local[3]"', "local[2]", ["--master", "local[1]"], ["local[3]", "local[2]", "local[1]"]),
]


def test_precedence_is_tried_with_every_kind_of_value() -> None:
    tried = {name for name, *_ in PRECEDENCE}
    kinds = {(str(each.type), each.option.kind) for each in settings_of(JobSettings) if each.key in tried}
    assert kinds >= {(str(each.type), each.option.kind) for each in settings_of(JobSettings) if each.name != "conf"}


@pytest.mark.parametrize(("key", "in_file", "variable", "flags", "expected"), PRECEDENCE)
def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    in_file: str,
    variable: str,
    flags: list[str],
    expected: list[Any],
) -> None:
    """click fills the command, and we fill `JobSettings.load`: they have to agree."""
    name, file = key.replace("-", "_"), write(tmp_path, f"[run]\n{key} = {in_file}\n")
    server = {} if key == "bootstrap-server" else {"bootstrap_server": SERVER}
    command = main.get_command(click.Context(main), "run")
    assert command is not None

    def both(*more: str) -> tuple[Any, Any, str]:
        given = ["--config", file, *more, *([] if not server else ["--bootstrap-server", SERVER])]
        ctx = command.make_context("run", list(given))
        made = JobSettings(**ctx.params)
        by_flag = {name: getattr(made, name)} if more else {}
        return (
            getattr(made, name),
            getattr(JobSettings.load(file, **server, **by_flag), name),
            show("run", *given)[key][1],
        )

    assert both() == (expected[0], expected[0], f"file {file}")
    monkeypatch.setenv(f"OFFSETSTREAM_{name.upper()}", variable)
    assert both() == (expected[1], expected[1], f"environment OFFSETSTREAM_{name.upper()}")
    assert both(*flags) == (expected[2], expected[2], "flag")


def test_defaults_apply_without_flag_environment_and_file(tmp_path: Path) -> None:
    shown = show("run", "--bootstrap-server", SERVER)
    assert {source for key, (_, source) in shown.items() if key != "bootstrap-server"} == {"default"}
    made = JobSettings(bootstrap_server=SERVER)
    assert made == JobSettings.load(bootstrap_server=SERVER)
    assert (made.trigger, made.once, made.history, made.max_silence) == (
        "10 seconds",
        False,
        True,
        timedelta(minutes=10),
    )
    assert (made.tables, made.checkpoint) == (str(Path("tables").absolute()), str(Path("checkpoints").absolute()))
    assert made.store.name == made.tables
    assert shown["max-silence"][0] == "10"


def test_settings_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, '[run]\nconf = {spark.driver.memory = "4g", "spark.ui.enabled" = true}\n')
    made = JobSettings.load(file, bootstrap_server=SERVER)
    assert made.conf == {"spark.driver.memory": "4g", "spark.ui.enabled": "true"}
    assert show("run", "--config", file)["conf.spark.driver.memory"] == ("4g", f"file {file}")
    assert show("run", "--config", file, "--conf", "a=b=c")["conf.a"] == ("b=c", "flag")
    refused = invoke("run", "--bootstrap-server", SERVER, "--conf", "a")
    assert (refused.exit_code, "'--conf'" in refused.stderr, "give NAME=VALUE" in refused.stderr) == (2, True, True)


def test_the_entry_point_for_spark_submit_leaves_settings_of_spark_to_it(tmp_path: Path) -> None:
    text = f'bootstrap-server = "{SERVER}"\n[run]\nmaster = "local[1]"\nconf = {{a = "b"}}\ntrigger = "3 seconds"\n'
    job: click.Command = runpy.run_path(str(JOB))["materialize_offsets"]
    given = job.make_context("materialize_offsets", ["--config", write(tmp_path, text)]).params
    assert (given["bootstrap_server"], given["trigger"]) == (SERVER, "3 seconds")
    assert "conf" not in given


WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({}, "bootstrap_server: give a value, it has no default"),
    ({"bootstrap_server": ","}, "bootstrap_server: ',' lacks a broker"),
    (
        {"bootstrap_server": "a:9092,b:99999"},
        "bootstrap_server: 'b:99999' has an invalid port: ports are from 1 to 65535",
    ),
    ({"tables": 5}, "tables: 5 is not a text"),
    ({"once": "maybe"}, "once: 'maybe' is not true or false"),
    ({"max_offsets_per_trigger": "many"}, "max_offsets_per_trigger: 'many' is not a whole number"),
    ({"max_offsets_per_trigger": 0}, "max_offsets_per_trigger: 0 is less than 1"),
    ({"bootstrap_server": ["a:1"]}, "bootstrap_server: ['a:1'] is not a text"),
    ({"max_silence": timedelta(minutes=-1)}, "max_silence: -1.0 is not a number of minutes"),
    ({"max_silence": "long"}, "max_silence: 'long' is not a number of minutes"),
    ({"trigger": "often"}, "trigger: 'often' is not a valid interval: give"),
    ({"coordinator": "old"}, "coordinator: 'old' is not one of new, classic"),
    *(({"conf": conf}, "conf: give NAME=VALUE") for conf in (5, [1], "a=b", ["a"])),
    ({"metrics_allowed_host": "job"}, "metrics_allowed_host: 'job' is not a list"),
    (
        {"metrics_allowed_host": ["job:9464"]},
        "metrics_allowed_host: 'job:9464' is not a host name: give the name alone",
    ),
    ({"metrics_allowed_host": ["a", "*"]}, "metrics_allowed_host: '*' is not a host name"),
    ({"metrics_allowed_host": ["http://job/"]}, "metrics_allowed_host: 'http://job/' is not a host name"),
    ({"properties": {"ssl.key.password": ["hush"]}}, "properties: ssl.key.password is not a text"),
    ({"nonsense": 1}, "nonsense: there is no such setting"),
]


@pytest.mark.parametrize(
    ("given", "words"), WRONG_SETTINGS, ids=[words.partition(":")[0] for _, words in WRONG_SETTINGS]
)
def test_wrong_argument_of_a_program_gives_one_line_that_names_it(given: dict[str, Any], words: str) -> None:
    server = {"bootstrap_server": SERVER} if given else {}
    makers: list[Callable[..., JobSettings]] = [JobSettings.load]
    if given and "nonsense" not in given:  # of which Python itself says that they are no arguments
        makers.append(JobSettings)
    for make in makers:
        with pytest.raises(UsageError) as error:
            make(**(server | given))
        assert str(error.value).startswith(f"the setting {words}")
        assert "\n" not in str(error.value)
        assert "hush" not in str(error.value)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETSTREAM_MAX_OFFSETS_PER_TRIGGER", "many")
    with pytest.raises(UsageError, match="the setting max_offsets_per_trigger: "):
        JobSettings.load(bootstrap_server=SERVER)
    assert JobSettings(bootstrap_server=SERVER).max_offsets_per_trigger > 1  # which asks no environment
    monkeypatch.setenv("OFFSETSTREAM_MAX_OFFSETS_PER_TRIGGER", "")  # is none, as the command has it
    monkeypatch.setenv("OFFSETSTREAM_PROPERTIES", '{"a": "b"}')  # is for programs only
    made = JobSettings.load(bootstrap_server=SERVER)
    assert (made.max_offsets_per_trigger, made.properties) == (1_000_000, {})


@pytest.mark.parametrize("name", ["tables", "checkpoint"])
def test_invalid_folder_is_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: "a%41"}
    with pytest.raises(UsageError, match="Delta cannot find such a folder again"):
        JobSettings(bootstrap_server=SERVER, **wrong)


def test_the_environment_is_read_as_the_command_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path, '[run]\nconf = {spark.a = "1"}')
    monkeypatch.setenv("OFFSETSTREAM_CONF", "spark.b=2 spark.c=3")
    monkeypatch.setenv("OFFSETSTREAM_PROPERTIES", "no setting of users")
    made = JobSettings.load(file, bootstrap_server=SERVER)
    shown = show("run", "--config", file)
    assert made.conf == {"spark.b": "2", "spark.c": "3"}
    assert {name: shown[f"conf.{name}"][0] for name in made.conf} == made.conf
    assert JobSettings.load(file, bootstrap_server=SERVER, conf={"spark.d": "4"}).conf == {"spark.d": "4"}
