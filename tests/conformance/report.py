"""Which of Kafka's own tests (rows.json, from reference 9) are tested here; writes docs/development/conformance.md.

A row is tested by a case of that name and class in tests/conformance, or by a function in tests/unit/conformance whose
module names the class, or several, in KAFKA_CLASS: `testLoadOffsets` is `test_load_offsets`, `deserializeOld` is
`test_deserialize_old`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.case import Case
from tests.conformance.cases import CASES

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "unit" / "conformance"
PAGE = ROOT / "docs" / "development" / "conformance.md"
_DATA = Path(__file__).parent
REQUIRED = frozenset("RSE")
_MEANING = {
    "R": "a replay must reproduce it",
    "S": "reading and writing records",
    "E": "expiry and cleanup",
    "W": "what a broker writes",
    "M": "metrics, logging, locking",
}
_FURTHER = "9.6"


@dataclass(frozen=True)
class Row:
    """One of Kafka's tests: the reference's section, Kafka's class, the name, and the classes R, S, E, W, M."""

    section: str
    kafka_class: str
    name: str
    classes: frozenset[str]

    @property
    def is_required(self) -> bool:
        """Whether it must be tested, or be listed with a reason."""
        return bool(self.classes & REQUIRED)


def rows() -> list[Row]:
    """All rows of reference 9.1-9.6."""
    document = json.loads((_DATA / "rows.json").read_text("utf-8"))
    return [
        Row(of_class["section"], kafka_class, name, frozenset(classes.split(",")))
        for kafka_class, of_class in document.items()
        for name, classes in of_class["tests"].items()
    ]


def not_applicable() -> dict[tuple[str, str], str]:
    """The reasons for rows that do not apply, by Kafka's class and test."""
    document = json.loads((_DATA / "not_applicable.json").read_text("utf-8"))
    return {(kafka_class, name): reason for kafka_class, of in document.items() for name, reason in of.items()}


def function_name(kafka_test: str) -> str:
    """The name of the test function for one of Kafka's tests."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kafka_test).lower()
    return snake if snake.startswith("test_") else f"test_{snake}"


def tests() -> dict[tuple[str, str], list[str]]:
    """Where each row is tested, by Kafka's class and test; a case counts by the name it has."""
    found: dict[tuple[str, str], list[str]] = {}
    functions = dict(_functions())
    for row in rows():
        module = functions.get((row.kafka_class, function_name(row.name)))
        places = [] if module is None else [f"`{module}`"]
        if any(_is_case_of(row, case.kafka_class, case.name) for case in CASES):
            places.insert(0, "`test_cases.py`")
        if places:
            found[row.kafka_class, row.name] = places
    return found


def _is_case_of(row: Row, kafka_class: str, name: str) -> bool:
    if row.kafka_class != kafka_class:
        return False
    return (
        name.split(" ", maxsplit=1)[0] == row.name.removeprefix("case_")
        if kafka_class == _FURTHER
        else name == row.name
    )


def not_in_tables() -> dict[str, str]:
    """The reasons why what the model holds is not in the tables, by a case's name, or Kafka's class and that."""
    document = json.loads((_DATA / "not_in_tables.json").read_text("utf-8"))
    return {name: reason for reason, names in document.items() for name in names}


def _in_tables(row: Row) -> str:
    """Whether the row's cases also run through Spark into Delta (tests/spark/test_conformance.py)."""
    cases = [case for case in CASES if _is_case_of(row, case.kafka_class, case.name)]
    if not cases:
        return ""
    reasons = {reason for case in cases for reason in (reason_not_in_tables(case),) if reason}
    some = any(not reason_not_in_tables(case) for case in cases)
    return "; ".join([*(["yes"] if some else []), *(f"{'not where ' if some else 'no: '}{r}" for r in sorted(reasons))])


def reason_not_in_tables(case: Case) -> str | None:
    """Return why the tables differ from the model here; None if they do not."""
    reasons = not_in_tables()
    return reasons.get(case.name) or reasons.get(f"{case.kafka_class} {case.name}")


def _functions() -> Iterator[tuple[tuple[str, str], str]]:
    for path in sorted(TESTS.glob("test_*.py")):
        module = ast.parse(path.read_text("utf-8"))
        named = [n for n in module.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "KAFKA_CLASS"]
        for node in module.body:
            if named and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                classes = ast.literal_eval(named[0].value)
                for kafka_class in (classes,) if isinstance(classes, str) else classes:
                    yield (kafka_class, node.name), path.name


def page() -> str:
    """The page as it must be."""
    tested, reasons = tests(), not_applicable()
    required = [row for row in rows() if row.is_required]
    done = sum((row.kafka_class, row.name) in tested for row in required)
    lines = [
        "# Conformance with Kafka's own tests",
        "",
        "Generated by `python -m tests.conformance.report`; a test holds it up to date. The rows are Kafka's tests",
        "of its group coordinators, as the reference lists them (9.1-9.6), and what each asks for is tested under",
        "the same name: as a log in `tests/conformance` (`test_cases.py` loads it whole, and batch by batch, and so",
        "does `tests/spark/test_conformance.py`, through Spark and Delta: the last column) or as a",
        "function in `tests/unit/conformance`.",
        "",
        f"{done} of the {len(required)} rows of class R, S or E are tested; {len(required) - done} do not apply.",
        f"Of the {len(rows()) - len(required)} others {len(tested) - done} are tested: methods that the model has.",
        "",
        *(f"- **{letter}**: {meaning}" for letter, meaning in _MEANING.items()),
    ]
    headings = ""
    for row in rows():
        heading = f"## {row.section} {row.kafka_class}" if row.kafka_class != row.section else f"## {row.section}"
        if heading != headings:
            headings = heading
            lines += [
                "",
                heading,
                "",
                "| Kafka's test | class | tested by | in the tables |",
                "| --- | --- | --- | --- |",
            ]
        key = (row.kafka_class, row.name)
        where = ", ".join(tested.get(key, [])) or reasons.get(key, "not in the model")
        lines.append(f"| {row.name} | {', '.join(sorted(row.classes))} | {where} | {_in_tables(row)} |")
    decisions = json.loads((_DATA / "decisions.json").read_text("utf-8"))
    lines += ["", "## What the reference leaves open, and how Kafka's code decides it", ""]
    lines += [f"- {decision}" for decision in decisions]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
