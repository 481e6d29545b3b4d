import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from offsetstream.embedded.file_names import require_java_in_utf8
from offsetstream.errors import EnvironmentNotReadyError

PRINT = """
import os
from offsetstream.embedded.file_names import start_java_in_utf8
start_java_in_utf8()
print({name: os.environ[name] for name in ("LANG", "LC_ALL", "LC_CTYPE") if name in os.environ})
"""


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ({"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}),
        ({"LC_ALL": "POSIX", "LANG": "C"}, {"LC_ALL": "C.UTF-8", "LANG": "C"}),
        ({"LANG": "C"}, {"LANG": "C", "LC_CTYPE": "C.UTF-8"}),
        ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C.UTF-8"}),
        ({"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}),
    ],
)
def test_processes_get_a_utf8_locale(given: dict[str, str], then: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", PRINT], env=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({name: then[name] for name in ("LANG", "LC_ALL", "LC_CTYPE") if name in then})


def java(encoding: str) -> Any:
    return SimpleNamespace(
        java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=lambda _: encoding)))
    )


def test_a_java_without_utf8_file_names_is_rejected() -> None:
    with pytest.raises(EnvironmentNotReadyError) as raised:
        require_java_in_utf8(java("ANSI_X3.4-1968"), ["/data/a", "/data/größe"])
    assert str(raised.value) == (
        "Spark's Java uses ANSI_X3.4-1968 for file names, and /data/größe is not ASCII. Start it with LC_ALL=C.UTF-8"
    )


def test_a_java_with_utf8_file_names_is_accepted() -> None:
    require_java_in_utf8(java("UTF-8"), ["/data/größe"])
    require_java_in_utf8(java("ANSI_X3.4-1968"), ["/data/a b", "s3://größe"])
