"""A broker of each release with groups of every type, which takes a minute to come about."""

from collections.abc import Iterator

import pytest

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from tests.kafka.every_group.all_groups import CLASSIC, NEWEST, OLDER, AllGroups, all_groups, broker_properties
from tests.kafka.jmx import jmx_options


@pytest.fixture(scope="package", params=[CLASSIC, OLDER, "4.3.1", NEWEST])
def every_group(request: pytest.FixtureRequest) -> Iterator[AllGroups]:
    """The broker and its groups, alive and at rest; only read from it (tests/conftest.py).

    They end with this folder: a hundred clients that go on take half a core.
    """
    release: str = request.param
    (port,) = free_ports(1)
    options = jmx_options(port)
    with (
        EmbeddedKafka(release, properties=broker_properties(release), jvm_options=options) as kafka,
        all_groups(kafka) as groups,
    ):
        groups.jmx_port = port
        yield groups
