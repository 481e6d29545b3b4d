"""mkdocs hooks for the site (mkdocs.yml): pages from outside `docs/`, and links between all pages.

README and its neighbours become pages of the site. Their links (`docs/reference/tables.md`) are changed to the paths
of the site. The name of a page in backticks becomes a link. A name without a page belongs to Kafka
(`tests/unit/test_docs.py` checks ours).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
BESIDE_DOCS = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md",
               "SECURITY.md": "SECURITY.md"}  # fmt: skip
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
_NAMED = re.compile(r"(?<!\[)`(docs/[\w./-]+\.md)`(?!\])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs/`."""
    for name, page in BESIDE_DOCS.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: object) -> str:
    """Turn links to files of the repository into links to pages of the site."""
    here = page.file.src_uri
    sources = {page: name for name, page in BESIDE_DOCS.items()}
    source = sources.get(here, f"docs/{here}")

    def link(path: str) -> str:
        return posixpath.relpath(BESIDE_DOCS.get(path, path.removeprefix("docs/")), posixpath.dirname(here) or ".")

    def linked(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        return f"]({link(path)}{found[2] or ''})"

    def named(found: re.Match[str]) -> str:
        return f"[`{found[1]}`]({link(found[1])})" if (ROOT / found[1]).exists() else found[0]

    return _NAMED.sub(named, _LINK.sub(linked, markdown))
