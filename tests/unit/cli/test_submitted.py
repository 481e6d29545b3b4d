"""The jobs as a launcher calls them: by a function, in whatever thread, in a runtime that has Spark of its own."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from offsetstream.cli.submitted import command, maintain_tables, materialize_offsets
from testkit.tables import new_tables

NOBODY = ["--bootstrap-server", "127.0.0.1:1", "--max-silence", "0"]


def test_successful_command_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Databricks calls it: loaded by its name, its options in `sys.argv`; there any SystemExit is a failure."""
    tables = new_tables(tmp_path / "tables")
    monkeypatch.setattr(sys, "argv", ["maintain_tables", "--tables", tables.root, "--output", "csv"])
    entry = EntryPoint("maintain_tables", "offsetstream.cli.submitted:maintain_tables", "packages")
    assert entry.load()() is None
    assert "offset_commits" in capsys.readouterr().out


def test_failed_command_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        maintain_tables.main(["--tables", str(tmp_path / "none")])
    assert ended.value.code == 1
    with pytest.raises(SystemExit) as ended:
        materialize_offsets.main(["--no-such-option"])
    assert ended.value.code == 2
    assert "no such" in capsys.readouterr().err.lower()


def test_any_other_command_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["offsetstream", "partition-for", "billing", "--partitions", "50"])
    command()
    assert capsys.readouterr().out.split()[-2:] == ["billing", "9"]
    monkeypatch.setattr(sys, "argv", ["offsetstream", "stop", "--tables", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 1


@pytest.mark.long
def test_the_job_may_be_called_in_another_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no signal can be caught."""
    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(materialize_offsets.main, [*NOBODY, "--tables", str(tmp_path)]).exception()
    assert isinstance(ended, SystemExit)
    assert ended.code == 3
    assert "no broker answers" in capsys.readouterr().err


@pytest.mark.parametrize(("runtime", "extra"), [(None, "spark"), ("17.3", "databricks")])
def test_extra_for_databricks_leaves_spark_to_the_runtime(
    runtime: str | None, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if runtime is not None:
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", runtime)
    for module in ("stream.job", "stream.metrics", "metrics.server"):  # they are imported again
        monkeypatch.delitem(sys.modules, f"offsetstream.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SystemExit):
        materialize_offsets.main(NOBODY)
    assert capsys.readouterr().err.endswith(
        f"Error: this needs the package prometheus_client: pip install 'offsetstream[{extra}]'\n"
    )
