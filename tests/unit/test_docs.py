"""The documents are complete: every section and rule that code, tests and documents cite exists."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# "reference 5.9 rows 3 and 4" names rows of 5.9; "reference 1.4-1.6, 5.7" the sections 1.4, 1.6 and 5.7.
NUMBERS = r"\d+(?:\.\d+)?(?: (?:rows?|items?|records?) \d+)?(?:(?:, | and |-)\d+(?:\.\d+)?(?: (?:rows?|items?) \d+)?)*"
CITATION = re.compile(rf"\b(reference|rules?) ({NUMBERS})", re.IGNORECASE)
BEYOND_SECTIONS = re.compile(r" (?:rows?|items?|records?) \d+(?:(?:, | and )\d+(?!\.|\d))*")
# `tests/kafka/test_reload.py`, `test_reload.py` or `test_reload.py::test_after_a_pause`.
TEST = re.compile(r"`(?:([\w/]+)/)?(test_\w+\.py)(?:::(test_\w+))?`")
LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)|`(docs/[\w./-]+\.md)`")


def files() -> Iterator[Path]:
    """Return every file that people read, except the tools' own folders."""
    for folder in ("offsetstream", "streaming_jobs", "testkit", "tests", "benchmarks", "scripts", "docs"):
        yield from (f for f in sorted((ROOT / folder).rglob("*")) if f.suffix in {".py", ".json", ".md", ".sql"})
    yield ROOT / "README.md"


def numbered_headings(*pages: Path) -> set[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", text, re.MULTILINE))


def cited(text: str) -> Iterator[tuple[str, str]]:
    """What is cited: (`reference` or `rule`, number)."""
    on_one_line = re.sub(r"\s*\n[\s#]*", " ", text)
    for kind, numbers in CITATION.findall(on_one_line):
        for number in re.findall(r"\d+(?:\.\d+)?", BEYOND_SECTIONS.sub("", numbers)):
            yield kind.lower().removesuffix("s"), number


def test_every_cited_section_exists() -> None:
    sections = {
        "reference": numbered_headings(*(DOCS / "reference").glob("*.md")),
        "rule": numbered_headings(DOCS / "development" / "rules.md"),
    }
    found = [(file, *each) for file in files() for each in cited(file.read_text(encoding="utf-8"))]
    assert len(found) > 150
    lacking = [
        (str(file.relative_to(ROOT)), kind, number) for file, kind, number in found if number not in sections[kind]
    ]
    assert lacking == []


def test_a_citation_of_several_sections_is_parsed() -> None:
    text = "(reference 4.10, 5.9 rows 3 and 4; rule 4), reference 5.10 item 5), (rules 5\n    # and 8)"
    assert list(cited(text)) == [
        ("reference", "4.10"), ("reference", "5.9"), ("rule", "4"), ("reference", "5.10"), ("rule", "5"), ("rule", "8"),
    ]  # fmt: skip


def test_every_link_to_a_file_leads_to_one() -> None:
    # The reference names files of Kafka.
    pages = [*DOCS.rglob("[!01]*.md"), *ROOT.glob("*.md")]
    broken = []
    for page in pages:
        for linked, _anchor, named in LINK.findall(page.read_text(encoding="utf-8")):
            target = ROOT / named if named else page.parent / linked
            if linked.startswith("http") or target.exists():
                continue
            broken.append((str(page.relative_to(ROOT)), linked or named))
    assert broken == []


def test_every_named_test_exists() -> None:
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    named = [(page.name, *each) for page in pages for each in TEST.findall(page.read_text("utf-8"))]
    assert len(named) > 50
    assert [
        each for each in named if not any(has_test(file, *each[1:]) for file in (ROOT / "tests").rglob(each[2]))
    ] == []


def has_test(file: Path, folder: str, _name: str, test: str) -> bool:
    return (not folder or file.parent == ROOT / folder) and (not test or f"def {test}(" in file.read_text("utf-8"))


def test_the_walk_of_a_commit_names_functions_that_exist() -> None:
    design = (DOCS / "development" / "design.md").read_text("utf-8")
    steps = re.findall(r"^\| `([\w/]+\.py)` `(?:(\w+)\.)?(\w+)` \|", design, re.MULTILINE)
    assert len(steps) > 15
    lacking = [step for step in steps if step[1:] not in set(functions(ROOT / "offsetstream" / step[0]))]
    assert lacking == []


def functions(module: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of each function of a module, with that of its class."""
    for node in ast.parse(module.read_text("utf-8")).body:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef):
                yield owner, each.name


def test_the_rooms_of_the_job_name_all_of_its_modules() -> None:
    design = (DOCS / "development" / "design.md").read_text("utf-8")
    rooms = design[design.index("| room | what |") : design.index("`lint-imports` enforces")]
    job = ROOT / "offsetstream" / "stream"
    assert set(re.findall(r"`(\w+\.py)`", rooms)) == {file.name for file in job.rglob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"^\| `(\w+)/` ", rooms, re.MULTILINE)) == {file.parent.name for file in job.glob("*/*.py")}


def test_the_page_of_the_tables_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "tables_doc.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["tables_page"](), "run 'make docs'"


def test_the_page_of_the_views_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "views_doc.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["views_page"](), "run 'make docs'"
    assert script["NAMES"].read_text(encoding="utf-8") == script["names_module"](), "run 'make docs'"


def test_the_page_of_the_commands_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "commands_doc.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["commands_page"](), "run 'make docs'"


def test_docstrings_have_one_markup() -> None:
    """The same as in the documents: Markdown's single backticks, no roles."""
    other = re.compile(r"(?<![`\"])`{2}(?![`\"])|:(?:class|func|meth|data|attr|mod|exc):`")
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in files()
        if file.suffix == ".py" and file != Path(__file__)
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if other.search(line)
    ]
    assert not found
