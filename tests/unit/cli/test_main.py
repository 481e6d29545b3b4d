import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import offsetstream
from offsetstream.cli.main import SUBCOMMANDS, LazyGroup, main
from offsetstream.errors import LeaseError, OffsetstreamError, UnauthorisedError, UnreachableError, UsageError
from offsetstream.tables.path_store import PathStore
from testkit.processes import leaves, printed


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_has_help_with_examples_of_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for path, _ in leaves(command, [name]):
        result = CliRunner().invoke(main, [*path, "--help"], prog_name="offsetstream")
        assert result.exit_code == 0
        assert "Examples:\n" in result.output
        assert f"    offsetstream {' '.join(path)}" in result.output


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "offsets undo",
            "Save the previous offsets in this folder; 'offsets undo' looks there for",
        ),
        ("groups history", "10m (before the present time, also if the job has ended)"),
    ],
)
def test_the_help_of_an_option_says_what_it_does(command: str, told: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), "--help"])
    assert told in " ".join(result.output.split())


def test_the_help_lists_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for title, commands in SUBCOMMANDS.items():
        listed = result.output.split(f"{title}:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed] == list(commands)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["groups", "--help"], ["offsets", "list", "--help"], ["run", "--help"], ["maintain", "--help"]],
)
def test_look_ups_import_neither_spark_nor_kafka(arguments: list[str]) -> None:
    code = (
        "import sys; from offsetstream.cli.main import main; main(standalone_mode=False); "
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    heavy = {"pyspark", "pandas", "pyarrow", "numpy", "confluent_kafka"}
    assert not heavy & set(done.stdout.splitlines()[-1].split())


def test_version_is_printed() -> None:
    for option in ("-V", "--version"):
        assert CliRunner().invoke(main, [option]).output == f"offsetstream {offsetstream.__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["groups", "nonsense"], ["groups", "list", "--nonsense"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "nonsense" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("typed", "meant"), [(["group"], "groups"), (["groups", "lst"], "list"), (["offsets", "rest"], "reset")]
)
def test_the_nearest_command_is_named(typed: list[str], meant: str) -> None:
    assert f"Did you mean {meant}?" in CliRunner().invoke(main, typed).stderr


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(OffsetstreamError, 1), (LeaseError, 1), (UsageError, 2), (UnreachableError, 3)],
)
def test_known_error_gives_one_line_and_its_exit_code(error: type[OffsetstreamError], exit_code: int) -> None:
    @click.group(cls=LazyGroup, sections={}, invoke_without_command=True)
    def broken() -> None:
        raise error("what,\nwhere, what to do")

    result = CliRunner().invoke(broken, [])
    assert (result.exit_code, result.stderr) == (exit_code, "Error: what, where, what to do\n")
    assert result.stdout == ""


class OfEndedJavaError(Exception):
    """As py4j's errors: Java has the text, and has ended."""

    def __str__(self) -> str:
        raise ConnectionError("Gateway is not connected.")


@pytest.mark.parametrize(
    ("error", "cause", "said"),
    [
        (UnauthorisedError("lacks DESCRIBE"), OfEndedJavaError(), "Error: lacks DESCRIBE\n"),
        (OfEndedJavaError(), None, "Error: Unknown error: OfEndedJavaError"),
    ],
)
def test_an_error_of_java_can_be_named_after_java_has_ended(error: Exception, cause: Exception, said: str) -> None:
    @click.group(cls=LazyGroup, sections={}, invoke_without_command=True)
    def broken() -> None:
        raise error from cause

    assert CliRunner().invoke(broken, []).stderr.startswith(said)


def test_options_come_from_the_environment(tmp_path: Path) -> None:
    environment = {"OFFSETSTREAM_TABLES": str(tmp_path / "somewhere")}
    for arguments in (["groups", "list"], ["offsets", "list"], ["stop"]):
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exit_code == 1
        assert f"{tmp_path}/somewhere" in result.stderr


def test_python_dash_m_runs_the_command() -> None:
    assert printed("-V") == f"offsetstream {offsetstream.__version__}\n"


@pytest.mark.parametrize(("arguments", "exit_code"), [(["-V"], 0), (["nonsense"], 2)])
def test_a_thread_in_native_code_does_not_change_the_exit_code(arguments: list[str], exit_code: int) -> None:
    """Such as the one that reads metrics of groups: a job that was stopped meanwhile was aborted (exit code 134)."""
    code = """
import sys, threading, duckdb
from offsetstream.cli.main import main

def work():
    connection = duckdb.connect()
    while True:
        connection.sql("SELECT sum(i * i) FROM range(300000) numbers(i)").fetchall()
        begun.set()

begun = threading.Event()
threading.Thread(target=work, daemon=True).start()
begun.wait()
main(sys.argv[1:])
"""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False)
    assert done.returncode == exit_code, done.stderr


def refused_write() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "tables/groups")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (refused_write, "Error: [Errno 28] No space left on device: 'tables/groups'\n"),
        (lambda: PathStore("/dev/null").open("groups"), "Error: "),
    ],
)
def test_storage_error_gives_one_line(broken: Callable[[], None], words: str) -> None:
    command = LazyGroup(sections={}, invoke_without_command=True, callback=broken)
    result = CliRunner().invoke(command, [])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(words)


def test_unknown_error_is_one_line_and_a_file_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("first\nsecond")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = CliRunner().invoke(LazyGroup(sections={}, invoke_without_command=True, callback=broken), [])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    (file,) = tmp_path.iterdir()
    assert result.stderr.startswith("Error: Unknown error: KeyError: ")
    assert result.stderr.endswith(f"The complete error is in {file}\n")
    assert "Traceback" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_folder_of_an_unknown_user_gives_one_line() -> None:
    result = CliRunner().invoke(main, ["groups", "list", "--tables", "~no-such-user/tables"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "~no-such-user/tables" in result.stderr


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["gro"], ["groups"]),
        (["groups", "re"], ["rebalances"]),
        (["groups", "status", "--fail"], ["--fail-on"]),
        (["groups", "status", "--fail-on", "n"], ["never"]),
    ],
)
def test_a_shell_completes_commands_and_options(typed: list[str], completed: list[str]) -> None:
    words = " ".join(["offsetstream", *typed])
    asked = {"_OFFSETSTREAM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(typed))}
    result = CliRunner().invoke(main, [], prog_name="offsetstream", env=asked)
    assert [line.partition(",")[2] for line in result.output.splitlines()] == completed


@pytest.mark.parametrize(("runtime", "after"), [(None, ""), ("17.3", "after")])
def test_the_end_drops_what_libraries_print_but_on_databricks_the_process_continues(
    runtime: str | None, after: str
) -> None:
    program = """
import os
from contextlib import suppress
from offsetstream.cli.main import main

with suppress(SystemExit):
    main(["--version"])
os.write(2, b"after")
"""
    environment = {**os.environ, **({"DATABRICKS_RUNTIME_VERSION": runtime} if runtime else {})}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == after
