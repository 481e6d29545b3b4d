"""PySpark's Ivy resolves artifacts from a registry made of files, and reports one that does not answer."""

import multiprocessing
import zipfile
from pathlib import Path

import pytest

from offsetstream.embedded.artifacts import resolve
from offsetstream.errors import EnvironmentNotReadyError

SETTINGS = """<ivysettings>
  <settings defaultResolver="files"/>
  <resolvers><ibiblio name="files" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>"""
POM = """<project><modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
  <dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = (
    "<dependency><groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version></dependency>"
)


def publish(registry: Path, name: str, *needs: str) -> None:
    folder = registry / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True)
    dependencies = "".join(DEPENDENCY.format(name=needed) for needed in needs)
    (folder / f"{name}-1.0.pom").write_text(POM.format(name=name, dependencies=dependencies))
    with zipfile.ZipFile(folder / f"{name}-1.0.jar", "w") as jar:
        jar.writestr("content", name)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    registry = tmp_path / "registry"
    publish(registry, "app", "library")
    publish(registry, "library")
    publish(registry, "other", "library")
    settings = tmp_path / "settings.xml"
    settings.write_text(SETTINGS.format(root=registry.as_uri()))
    monkeypatch.setenv("OFFSETSTREAM_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("OFFSETSTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def names(coordinates: list[str], *, transitive: bool = True) -> list[str]:
    return sorted(jar.name for jar in resolve(coordinates, transitive=transitive))


def test_dependencies_are_resolved_once(cache: Path) -> None:
    both = ["org.example:app:1.0", "org.example:other:1.0"]
    assert names(both) == ["app-1.0.jar", "library-1.0.jar", "other-1.0.jar"]
    assert names(both, transitive=False) == ["app-1.0.jar", "other-1.0.jar"]


def test_a_second_call_starts_a_jvm_only_if_a_jar_is_missing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = resolve(["org.example:app:1.0"])
    assert all(cache in jar.parents for jar in jars)
    monkeypatch.setenv("JAVA_HOME", str(cache / "no-java"))
    assert resolve(["org.example:app:1.0"]) == jars
    jars[0].unlink()
    with pytest.raises(EnvironmentNotReadyError, match="JAVA_HOME"):
        resolve(["org.example:app:1.0"])
    monkeypatch.delenv("JAVA_HOME")
    assert resolve(["org.example:app:1.0"]) == jars
    assert jars[0].is_file()


def test_concurrent_processes_all_get_the_jars(cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        answers = pool.map(names, [["org.example:app:1.0"]] * 2 + [["org.example:other:1.0"]])
    assert answers == [["app-1.0.jar", "library-1.0.jar"]] * 2 + [["library-1.0.jar", "other-1.0.jar"]]


def test_an_artifact_missing_from_the_registry_is_named(cache: Path) -> None:
    with pytest.raises(EnvironmentNotReadyError, match=r"does not have org\.example#app;9\.9\. Check the version"):
        resolve(["org.example:app:9.9"])


def test_a_silent_registry_is_reported_in_one_line_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETSTREAM_CACHE", str(tmp_path))
    # Nothing listens at the proxy, so no request leaves the machine.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(EnvironmentNotReadyError) as raised:
        resolve(["org.apache.kafka:kafka-clients:4.3.1"])
    message = str(raised.value)
    assert message.startswith("The Maven registry does not answer")
    assert f"copy the folder {tmp_path}" in message
    assert "\n" not in message
