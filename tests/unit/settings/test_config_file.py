"""The file of settings: one for all commands; what it cannot have is one line that names it.

`offsetstream config show` tells what holds, and where it comes from; no secrets.
"""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from offsetstream.cli.main import main
from offsetstream.errors import UsageError
from offsetstream.settings.config_file import COMMANDS
from offsetstream.stream.settings import JobSettings
from testkit.processes import leaves
from tests.unit.settings.support import SERVER, invoke, show, write


def test_the_commands_that_take_a_file() -> None:
    found = set()
    for name in main.list_commands(click.Context(main)):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        for path, each in leaves(command, [name]):
            if name != "config" and any("--config" in option.opts for option in each.params):
                found.add(".".join(path))
    assert found == set(COMMANDS)


def test_one_file_serves_all_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
tables = "{tmp_path}/at-the-top"
output = "csv"
[groups.list]
type = ["Share", "Streams"]
[offsets.list]
tables = "{tmp_path}/its-own"
partition = [1, 2]
[verify]
settle = 3
[maintain]
keep-history = ["4w", "offset_commits=7 days"]
"""
    monkeypatch.setenv("OFFSETSTREAM_CONFIG", write(tmp_path, text))
    assert show("groups", "list")["type"][0] == "Share, Streams"
    assert show("groups", "describe")["tables"][0] == f"{tmp_path}/at-the-top"
    assert show("offsets", "list")["tables"][0] == f"{tmp_path}/its-own"
    assert show("verify")["settle"][0] == 3
    assert show("maintain")["keep-history"][0] == "28d, offset_commits=7d"
    refused = invoke("groups", "list")
    assert f"there is no table {tmp_path}/at-the-top" in refused.stderr
    assert f"there is no table {tmp_path}/flag" in invoke("groups", "list", "--tables", f"{tmp_path}/flag").stderr
    monkeypatch.setenv("OFFSETSTREAM_TABLES", f"{tmp_path}/variable")
    assert f"there is no table {tmp_path}/variable" in invoke("offsets", "list").stderr


WRONG = [
    ('tabels = "x"', "unknown key tabels: did you mean tables?"),
    ("[rum]", "unknown key rum: did you mean run?"),
    ("tables = 5", "tables must be a text, not a whole number"),
    ("run = true", "run must be a table, not true or false"),
    ("[run]\ntrigger = 5", "run.trigger must be a text, not a whole number"),
    ("[run]\ntrigger = 'often'", "run.trigger: 'often' is not a valid interval: give '10 seconds'"),
    ("[run]\nonce = 'yes'", "run.once must be true or false, not a text"),
    ("[run]\nmax-silence = '5'", "run.max-silence must be a number of minutes, not a text"),
    ("[run]\nmax-silence = -1", "run.max-silence: -1 is not a number of minutes"),
    ("[run]\nmax-silence = 2026-01-01", "run.max-silence must be a number of minutes, not a date or time"),
    ("[run]\nmax-offsets-per-trigger = true", "run.max-offsets-per-trigger must be a whole number, not true or false"),
    ("[run]\nmax-offsets-per-trigger = 0", "run.max-offsets-per-trigger: "),
    ("[run]\ncoordinator = 'old'", "run.coordinator: "),
    ("[run]\nmax_silence = 5", "unknown key run.max_silence: did you mean max-silence?"),
    ("[run]\nconf = ['a=b']", "run.conf must be a table, not a list"),
    ("[run]\nconf = {a = ['b']}", "run.conf.a must be a text, not a list, date or time"),
    ("[kafka]\nssl.key.password = ['hush']", "kafka.ssl.key.password must be a text, not a list"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_invalid_key_gives_one_line_that_names_it(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    for arguments in (
        ("run", "--bootstrap-server", SERVER, "--max-silence", "0"),
        ("config", "show"),
        ("config", "show", "run"),
    ):
        refused = invoke(*arguments, "--config", file)
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert refused.stderr.startswith(f"Error: {file}: {words}")
        assert "hush" not in refused.stderr
    with pytest.raises(UsageError) as error:
        JobSettings.load(file, bootstrap_server=SERVER)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [
        (["groups", "list"], "[groups]\ntype = ['Share']", "unknown key groups.type: known names are list, describe"),
        (["groups", "list"], "[groups.list]\ntype = 'Share'", "groups.list.type must be a list, each of a text, not a"),
        (["groups", "list"], "[groups.list]\ntype = [1]", "groups.list.type must be a list, each of a text"),
        (["groups", "list"], "[groups.list]\ntype = ['Nonsense']", "groups.list.type: 'Nonsense' is not one of"),
        (["maintain"], "[maintain]\nkeep-history = ['30h']", "maintain.keep-history: '30h' is not a number of days"),
        (["verify"], "[verify]\nsettle = nan", "verify.settle: nan is not a number of seconds"),
        (["groups", "describe"], "[groups.describe]\nmembers = true", "unknown key groups.describe.members"),
        (["stop"], "[kafka]\na = [1]", "kafka.a must be a text"),
    ],
)
def test_invalid_key_of_another_command_gives_one_line(
    tmp_path: Path, command: list[str], text: str, words: str
) -> None:
    file = write(tmp_path, text)
    refused = invoke(*command, "--config", file)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith(f"Error: {file}: {words}")


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file or directory"), (b"x = = 1", "not valid TOML: "), (b"x = '\xff'", "not valid TOML: ")],
)
def test_unreadable_settings_file_gives_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "settings.toml"
    if content is not None:
        file.write_bytes(content)
    refused = invoke("groups", "list", "--config", str(file))
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith(f"Error: cannot read the settings file {file}: {words}")


def test_client_properties_of_the_file(tmp_path: Path) -> None:
    """Those of --command-config win; a dotted key is a name, whether it is quoted or not."""
    file = write(tmp_path, '[kafka]\nsecurity.protocol = "SSL"\n"client.id" = "x"\nsasl.login.refresh.buffer = 3\n')
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=PLAINTEXT\n")
    made = JobSettings.load(file, bootstrap_server=SERVER)
    assert made.properties == {"security.protocol": "SSL", "client.id": "x", "sasl.login.refresh.buffer": "3"}
    made = JobSettings.load(file, bootstrap_server=SERVER, command_config=str(properties))
    assert made.properties == {"security.protocol": "PLAINTEXT", "client.id": "x", "sasl.login.refresh.buffer": "3"}


@pytest.mark.parametrize("command", [["verify"], ["coordinator", "--group", "g"], ["dump"], ["run"]])
def test_every_command_with_a_cluster_uses_the_files_client_properties(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = write(tmp_path, '[kafka]\nsecurity.protocol = "carrier pigeon"\n')
    refused = invoke(*command, "--bootstrap-server", SERVER, "--config", file)
    if command[0] == "coordinator":  # which looks at the tables first
        assert "there is no table" in refused.stderr
    else:
        assert (refused.exit_code, "security.protocol must be one of PLAINTEXT" in refused.stderr) == (2, True)


SECRETS = """
tables = "s3a://hush:hu/sh@lake/kafka"
[kafka]
security.protocol = "SASL_SSL"
"sasl.jaas.config" = "org.apache... password='hush'"
ssl.truststore.password = "hush"
ssl.keystore.key = "hush"
"ssl.key.password" = "hush"
sasl.oauthbearer.assertion.private = "hush"
basic.auth.user.info = "hush:hush"
[run.conf.spark]
hadoop.fs.s3a.secret.key = "hush"
hadoop.fs.azure.account.key.x = "hush"
x.TOKEN = "hush"
driver.extraJavaOptions = "-Djavax.net.ssl.keyStorePassword=hush"
hadoop.fs.azure.sas.c = "hush"
x.y = "az://c/x?sv=1&sig=hush"
"""


@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_secrets_are_hidden(tmp_path: Path, output: str) -> None:
    shown = invoke("config", "show", "--config", write(tmp_path, SECRETS), "--output", output)
    assert shown.exit_code == 0
    assert "hush" not in shown.output
    for name in ("kafka.sasl.jaas.config", "conf.spark.x.TOKEN", "kafka.ssl.key.password"):
        assert name in shown.stdout
    assert "SASL_SSL" in shown.stdout
    assert "s3a://(hidden)@lake/kafka" in shown.stdout
    made = JobSettings(bootstrap_server=SERVER, properties={"a": "hush"}, conf={"b": "hush"})
    assert "hush" not in repr(made)


def test_each_value_is_shown_with_its_source(tmp_path: Path) -> None:
    assert {command for command in COMMANDS if command.replace(".", " ") in invoke("config", "show").stdout} == set(
        COMMANDS
    )
    of_groups = [command.split(".") for command in COMMANDS if command.startswith("groups.")]
    assert show("groups").keys() == set().union(*(show(*command).keys() for command in of_groups))
    for words in (["nonsense"], ["groups", "nonsense"], ["--tables", "x", "run"]):
        refused = invoke("config", "show", *words)
        assert (refused.exit_code, "is no command with settings" in refused.stderr) == (2, True)
    assert invoke("config", "show", "run", "--nonsense").exit_code == 2
    assert invoke("config", "show", "run", "--trigger", "often").exit_code == 2
