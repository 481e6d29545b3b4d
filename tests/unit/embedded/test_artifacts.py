"""The cache of artifacts, as far as it needs no JVM: here JAVA_HOME is wrong, so that starting one fails."""

from pathlib import Path

import pytest

from offsetstream.embedded.artifacts import cache_folder, check_disk_space, classpath, resolve
from offsetstream.errors import EnvironmentNotReadyError, UsageError

COORDINATES = ["org.example:first:1.0", "org.example:second:2.0"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    monkeypatch.setenv("OFFSETSTREAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder_is_the_users_unless_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("OFFSETSTREAM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "offsetstream"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "offsetstream"


@pytest.mark.parametrize("coordinate", ["org.example:first", "org.example::1.0", "a:b:c:d", ""])
def test_refuses_a_malformed_coordinate(coordinate: str) -> None:
    with pytest.raises(UsageError, match="group:artifact:version"):
        resolve([coordinate])


def test_an_unwritable_cache_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OFFSETSTREAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentNotReadyError, match="Set OFFSETSTREAM_CACHE"):
        resolve(COORDINATES)


def test_a_classpath_uses_the_systems_separator() -> None:
    assert classpath([Path("a.jar"), Path("b.jar")]).split(":") == ["a.jar", "b.jar"]


def test_disk_space_is_checked_in_the_nearest_existing_folder(tmp_path: Path) -> None:
    check_disk_space(tmp_path / "not" / "yet", 1, "a test")
    with pytest.raises(EnvironmentNotReadyError, match=r"Not enough disk space for a test: .*not.yet has \d+ MiB free"):
        check_disk_space(tmp_path / "not" / "yet", 1 << 70, "a test")
