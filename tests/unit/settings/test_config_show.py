"""`offsetstream config show`: what holds, and where it comes from; no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from offsetstream.settings.config_file import COMMANDS
from offsetstream.stream.settings import JobSettings
from tests.unit.settings.support import SERVER, invoke, show, write

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
