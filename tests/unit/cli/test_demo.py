"""Options that `offsetstream demo` rejects before it starts anything."""

from __future__ import annotations

import pytest

from testkit.processes import within


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--pause", "3"], "--pause needs --bootstrap-server"),
        (["--bootstrap-server", "localhost:1", "--port", "3"], "--port cannot be combined with --bootstrap-server"),
        (["--bootstrap-server", "localhost:1", "--kafka-version", "3.9.2"], "--kafka-version cannot be combined with"),
    ],
)
def test_an_option_of_the_other_mode_is_rejected(
    given: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The clients delete groups: a variable must not point them at a cluster.
    monkeypatch.setenv("OFFSETSTREAM_BOOTSTRAP_SERVER", "localhost:1")
    monkeypatch.setenv("OFFSETSTREAM_DEMO_BOOTSTRAP_SERVER", "localhost:1")
    result = within("demo", *given)
    assert result.returncode == 2
    assert message in result.stderr
