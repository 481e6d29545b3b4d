"""The documentation site builds, if every link leads to a page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("mkdocs.yml", "docs", "scripts", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    done = build(ROOT, site)
    assert done.returncode == 0, done.stderr
    return site


def test_readme_is_the_first_page_and_links_to_the_others(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    assert 'href="reference/tables/"' in first
    assert 'href="CONTRIBUTING/"' in first
    assert re.search(r'src="images/report\.png"|src=images/report\.png', first)
    linked = r'href="\.\./security/"[^>]*><code>docs/how-to/security\.md</code>'
    assert re.search(linked, _page(site, "how-to/spark-submit"))
    assert re.search(r'href="\.\./docs/|href="docs/', first + _page(site, "CONTRIBUTING")) is None


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    assert [page for page in pages if LOADED.search(page.read_text("utf-8"))] == []
    styles = [sheet for sheet in site.rglob("*.css") if re.search(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text())]
    assert styles == []


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    for name in PARTS:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("\n[gone](docs/gone.md), [no heading](docs/reference/tables.md#no-table)\n")
    (tmp_path / "docs" / "in-no-list.md").write_text("# Nobody finds it\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    for words in ("'gone.md'", "'#no-table'", "in-no-list.md"):
        assert words in done.stderr
    assert done.stderr.count("WARNING") == 3


def _page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text("utf-8")
