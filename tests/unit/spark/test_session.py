"""How the session's JVM is started, without one."""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from offsetstream.embedded.ports import free_ports
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark import local
from offsetstream.spark.settings import require_memory
from testkit.processes import OFFSETSTREAM, within
from testkit.tables import new_tables


@pytest.mark.parametrize(("starts_java", "ends"), [(False, True), (True, False)])
def test_only_the_jvm_ignores_sigterm(starts_java: bool, ends: bool) -> None:
    """A job that is asked to stop while Spark starts hears it."""
    heard = list[int]()

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        if starts_java:
            local._starts_java.set()
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            preexec_fn=_as_pyspark_does,  # noqa: PLW1509 - it is how PySpark starts its JVM
        )
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        child.terminate()
        child.communicate(b"\n")
        assert (child.returncode == -signal.SIGTERM) is ends
    finally:
        local._starts_java.clear()
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("starts_java", [False, True])
def test_output_of_the_jvm_goes_to_standard_error(capfd: pytest.CaptureFixture[str], starts_java: bool) -> None:
    """Delta's VACUUM of a catalog told its files before the JSON of `maintain`."""
    try:
        if starts_java:
            local._starts_java.set()
        command = [sys.executable, "-c", "print('Deleted 0 files')"]
        subprocess.Popen(command, preexec_fn=_as_pyspark_does).wait()  # noqa: PLW1509 - it is how PySpark does it
    finally:
        local._starts_java.clear()
    out, err = capfd.readouterr()
    assert (out, err) == (("", "Deleted 0 files\n") if starts_java else ("Deleted 0 files\n", ""))


def _as_pyspark_does() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("given", "launches", "are_copied"),
    [
        ({}, True, False),
        ({"spark.master": "local[4]"}, True, False),
        ({"spark.master": "local"}, True, False),
        ({"spark.master": "local-cluster[2,1,1024]"}, True, True),
        ({"spark.master": "spark://master:7077"}, True, True),
        ({"spark.driver.extraClassPath": "mine.jar"}, True, True),  # where ours is not, then
        ({}, False, True),  # nor where the JVM is somebody else's
    ],
)
def test_jars_are_copied_only_for_executors_outside_the_driver(
    given: dict[str, str], launches: bool, are_copied: bool
) -> None:
    jars = [Path("kafka-clients-3.9.0.jar"), Path("delta-storage-4.4.0.jar")]
    settings = local.settings_of(given, {}, jars, launches=launches)
    assert settings.get("spark.jars") == (",".join(map(str, jars)) if are_copied else None)
    class_path = given.get("spark.driver.extraClassPath", "kafka-clients-3.9.0.jar:delta-storage-4.4.0.jar")
    assert settings["spark.driver.extraClassPath"] == class_path


def test_the_users_settings_win_wherever_they_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.local.dir=/mine\nspark.driver.memory=1g")
    given = {"spark.driver.memory": "3g", "spark.app.name": "mine", "spark.sql.session.timeZone": "Asia/Tokyo"}
    settings = local.settings_of(given, {"spark.local.dir": "ours", "spark.ours": "ours"}, [], launches=True)
    assert "spark.local.dir" not in settings  # Spark reads it itself
    assert {name: settings[name] for name in (*given, "spark.ours")} == {
        **given,
        "spark.sql.session.timeZone": "UTC",  # without which the job would be wrong
        "spark.ours": "ours",
    }


@pytest.mark.parametrize(
    ("given", "default", "arguments", "reason"),
    [
        ("300m", None, "", "'300m', and Spark does not start with less than 507m"),
        ("506m", None, "", "'506m'"),
        ("507M", None, "", None),
        ("519168k", None, "", None),
        ("519167k", None, "", "'519167k'"),
        ("1g", "1m", "", None),
        ("512", None, "", "'512'"),  # Java reads bytes
        ("512mb", None, "", "'512mb'"),  # Java does not read it
        ("lots", None, "", "'lots'"),
        ("", None, "", "''"),
        (None, "300m", "", "'300m' in spark-defaults.conf"),
        (None, "1g", "--driver-memory 300m pyspark-shell", "'300m' in PYSPARK_SUBMIT_ARGS"),
        ("1g", None, "--driver-memory=300m pyspark-shell", "'300m' in PYSPARK_SUBMIT_ARGS"),
        ("1g", None, "--conf spark.driver.memory=300m pyspark-shell", "'300m' in PYSPARK_SUBMIT_ARGS"),
        ("1g", None, "-c 'spark.driver.memory=300m' pyspark-shell", "'300m' in PYSPARK_SUBMIT_ARGS"),
        ("300m", None, "--driver-memory 100m --conf spark.driver.memory=1g pyspark-shell", None),
        ("300m", None, "--name 'mine", "'300m'"),
        (None, None, "", None),
    ],
)
def test_memory_with_which_spark_cannot_start_is_refused_before_java_starts(
    given: str | None,
    default: str | None,
    arguments: str,
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    (tmp_path / "spark-defaults.conf").write_text(f"spark.driver.memory {default}\n" if default else "")
    conf = {} if given is None else {"spark.driver.memory": given}
    if reason is None:
        require_memory(conf)
    else:
        with pytest.raises(EnvironmentNotReadyError, match=f"spark.driver.memory is {reason}"):
            local.LocalSpark("local[1]", conf)


def test_too_few_open_files_are_refused_before_java_starts(tmp_path: Path) -> None:
    started = ["bash", "-c", 'ulimit -n 160; exec "$@"', "bash", *OFFSETSTREAM]
    command = [*started, "run", "--bootstrap-server", "127.0.0.1:1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a process may open 160 files here" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("SPARK_HOME", "/nonexistent", "SPARK_HOME is /nonexistent, which has no bin/spark-submit"),
        ("PYSPARK_SUBMIT_ARGS", "--master local[2]", "PYSPARK_SUBMIT_ARGS is '--master local.2.': it must end with"),
    ],
)
def test_variables_of_another_spark_are_refused_before_java_starts(
    variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latter printed 97 lines of spark-submit's usage."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(EnvironmentNotReadyError, match=reason):
        local.LocalSpark("local[1]")


def test_a_command_refuses_too_little_memory_in_one_line(tmp_path: Path) -> None:
    new_tables(tmp_path)
    (port,) = free_ports(1)
    done = within(
        "views", "serve", "--tables", str(tmp_path), "--port", str(port), "--conf", "spark.driver.memory=300m"
    )
    assert (done.returncode, done.stdout) == (EnvironmentNotReadyError.exit_code, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: spark.driver.memory is '300m'")
    assert "Set spark.driver.memory=507m or more" in line


def test_sparks_own_jars_are_not_replaced_on_the_class_path() -> None:
    jars = [
        Path(name) for name in ("kafka-clients-3.9.0.jar", "jackson-databind-2.13.5.jar", "delta-storage-4.4.0.jar")
    ]
    assert local.on_class_path(jars) == {
        "spark.driver.extraClassPath": "kafka-clients-3.9.0.jar:delta-storage-4.4.0.jar"
    }
