"""One browser for these tests, whose network access is watched, and the pages that they open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from testkit.browser import Scheme, Visit, chromium, outside
from testkit.page import PERIOD, write_hostile_world, write_world
from testkit.processes import within
from testkit.tables import create_empty_tables

WRITERS: dict[str, Callable[[Path], None]] = {
    "ordinary": write_world,
    "hostile": write_hostile_world,
    "empty": create_empty_tables,
}


@pytest.fixture(scope="package")
def internet() -> Iterator[tuple[str, list[str]]]:
    with outside() as found:
        yield found


# Not session-scoped: while it lives its event loop runs in this thread, where another test may start one.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = {name: folder / f"{name}.html" for name in WRITERS}
    for name, write in WRITERS.items():
        write(folder / name)
        done = within("report", "--file", str(files[name]), "--tables", str(folder / name), *PERIOD)
        assert done.returncode == 0, done.stderr
    return files


@pytest.fixture(params=WRITERS)
def page(pages: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    """Each of the pages."""
    return pages[request.param]


@pytest.fixture
def visit(browser: Browser, internet: tuple[str, list[str]]) -> Iterator[Callable[..., Visit]]:
    """Open a file with a width and a colour scheme; it stays open until the test ends."""
    visits: list[Visit] = []

    def open_file(file: Path, width: int = 1200, scheme: Scheme = "light") -> Visit:
        visits.append(Visit(browser, width, scheme, internet[0]))
        visits[-1].go(file)
        return visits[-1]

    yield open_file
    for each in visits:
        each.close()
