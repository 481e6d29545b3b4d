"""`partition-for` as a command; what it computes is shown in tests/unit/coordinator."""

import json

import pytest
from click.testing import CliRunner, Result

from offsetstream.cli.main import main

# String.hashCode of "polygenelubricants" is Integer.MIN_VALUE, which Utils.abs takes as 0 (reference 7).
GROUPS = {"polygenelubricants": 0, "": 0, "a": 47, "😀": 49}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["partition-for", *arguments])


def test_json() -> None:
    result = run("--output", "json", *GROUPS)
    assert result.exit_code == 0
    assert json.loads(result.output) == [{"group_id": name, "partition": home} for name, home in GROUPS.items()]


def test_text_and_csv() -> None:
    assert run("a", "polygenelubricants").output == (
        "GROUP              PARTITION\na                  47\npolygenelubricants 0\n"
    )
    assert run("a", "--output", "csv").stdout_bytes == b"group_id,partition\r\na,47\r\n"


def test_another_number_of_partitions() -> None:
    assert json.loads(run("a", "--partitions", "96", "--output", "json").output) == [{"group_id": "a", "partition": 1}]
    assert run("a", "--partitions", "1", "--output", "csv").stdout_bytes.endswith(b"a,0\r\n")


@pytest.mark.parametrize("arguments", [[], ["a", "--partitions", "0"], ["a", "--partitions", "-50"]])
def test_wrong_usage(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
