"""This tier starts no Java: it is for quick runs while you edit one file."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

REFUSAL = "#!/bin/sh\necho 'a test of tests/unit starts no Java: move it to tests/spark or tests/kafka' >&2\nexit 1\n"


@pytest.fixture(scope="package", autouse=True)
def _no_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("no-java")
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(REFUSAL)
    java.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home))
        patch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
        yield
