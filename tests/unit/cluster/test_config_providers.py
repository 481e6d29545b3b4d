"""What is said of config providers that cannot be had; their values are compared with Kafka's in tests/oracle."""

from pathlib import Path

import pytest

from offsetstream.cluster.properties import read_properties
from offsetstream.errors import UsageError

ENV = "config.providers=env\nconfig.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"


def read(folder: Path, text: str) -> dict[str, str]:
    file = folder / "client.properties"
    file.write_text(text)
    return read_properties(str(file))


def test_a_password_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter${2:3}")
    found = read(tmp_path, ENV + 'sasl.jaas.config=a.b.PlainLoginModule required password="${env:KAFKA_PASSWORD}";')
    assert found == {"sasl.jaas.config": 'a.b.PlainLoginModule required password="hunter${2:3}";'}


def test_spaces_around_the_name_of_a_provider_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CLIENT", "me")
    assert read(tmp_path, ENV.replace("=env\n", "= env , \n") + "client.id=${env:KAFKA_CLIENT}")["client.id"] == "me"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENV + "ssl.key.password=${env:NOT_THERE}", r"ssl.key.password of .*: \$\{env:NOT_THERE\} has no value$"),
        (
            "ssl.key.password=${env:X}",
            r"\$\{env:X\}, but the provider env is not declared: add config.providers=env and .*EnvVarConfig",
        ),
        (
            "ssl.key.password=${file:/x:y}",
            r"provider file is not declared: add config.providers=file and .*\.FileConfigProvider$",
        ),
        ("config.providers=vault", r"config.providers.vault.class .* is missing: it must be org.apache"),
        ("config.providers=v\nconfig.providers.v.class=a.V", r"config.providers.v.class .* is a.V: it must be"),
        (
            "config.providers=f\nconfig.providers.f.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
            "client.id=${f:/no/such/file:key}",
            "client.id of the client properties: cannot read /no/such/file: No such file",
        ),
    ],
)
def test_the_error_is_one_line_that_names_the_property(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        read(tmp_path, text)
    assert len(str(error.value).splitlines()) == 1


def test_a_java_only_pattern_and_a_binary_file_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"config\.providers\.env\.param\.allowlist\.pattern .* not a valid regular expr"
    ):
        read(tmp_path, ENV + "config.providers.env.param.allowlist.pattern=\\\\p{Upper}+\nclient.id=${env:HOME}")
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    mounted = ENV.replace("env", "d").replace("EnvVarConfig", "DirectoryConfig")
    with pytest.raises(UsageError, match=r"cannot read .*token: it is not UTF-8$"):
        read(tmp_path, f"{mounted}client.id=${{d:{tmp_path}:token}}")
