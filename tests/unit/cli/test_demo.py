"""What `offsetstream demo` refuses before it starts anything."""

from __future__ import annotations

import pytest

from testkit.processes import within


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--pause", "3"], "--pause does not go without --bootstrap-server"),
        (["--bootstrap-server", "localhost:1", "--port", "3"], "--port does not go with --bootstrap-server"),
        (["--bootstrap-server", "localhost:1", "--kafka-version", "3.9.2"], "--kafka-version does not go with"),
    ],
)
def test_options_that_do_not_go_together(given: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # No variable sends the clients, who delete groups, to a cluster.
    monkeypatch.setenv("OFFSETSTREAM_BOOTSTRAP_SERVER", "localhost:1")
    monkeypatch.setenv("OFFSETSTREAM_DEMO_BOOTSTRAP_SERVER", "localhost:1")
    done = within("demo", *given)
    assert done.returncode == 2
    assert said in done.stderr
