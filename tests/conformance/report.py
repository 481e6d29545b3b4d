"""Which of Kafka's own tests (rows.json, from reference 9) are tested here; writes docs/development/conformance.md.

A row is tested by a case of that name and class in tests/conformance, or by a function in tests/unit/conformance whose
module names the class, or several, in KAFKA_CLASS: `testLoadOffsets` is `test_load_offsets`, `deserializeOld` is
`test_deserialize_old`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
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
        """Whether it must be tested, or listed with a reason."""
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
    """The place where each row is tested, by Kafka's class and test; a case counts by its name."""
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
    """The reasons why state of the model is not in the tables, by case name, or by Kafka's class and case name."""
    document = json.loads((_DATA / "not_in_tables.json").read_text("utf-8"))
    return {name: reason for reason, names in document.items() for name in names}


def reason_not_in_tables(case: Case) -> str | None:
    """Return why the tables differ from the model for this case; None if they do not."""
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
    """Return the page's expected text."""
    tested, reasons = tests(), not_applicable()
    required = [row for row in rows() if row.is_required]
    done = sum((row.kafka_class, row.name) in tested for row in required)
    lines = [
        "# Conformance with Kafka's own tests",
        "",
        "This page shows which tests of Kafka's own group coordinators are repeated here and where, and why others",
        "are not. It is for people who change the replay. `python -m tests.conformance.report` writes it; a test holds",
        "it current.",
        "",
        "[Reference 9](../reference/09-kafka-tests.md) lists Kafka's tests and what each asks for. A test has the same",
        "name here, as a log in `tests/conformance` or a function in `tests/unit/conformance`. `test_cases.py` loads",
        "each log whole, and batch by batch. `tests/spark/test_conformance.py` runs it through Spark and Delta, and",
        "compares the tables.",
        "",
        f"{done} of the {len(required)} tests of class R, S or E are repeated; {len(required) - done} do not apply.",
        f"Of the {len(rows()) - len(required)} others {len(tested) - done} are repeated.",
        "",
        *(f"- **{letter}**: {meaning}" for letter, meaning in _MEANING.items()),
        "",
        "| section | Kafka's class | R, S, E | of these repeated | others repeated | in |",
        "| --- | --- | --- | --- | --- | --- |",
        *_classes(tested),
        "",
        "## Tests that do not apply",
        "",
        *_grouped((reason, name) for (_, name), reason in reasons.items()),
        "",
        "## Where the tables differ from the model",
        "",
        "The model (`GroupMetadataCache`) passes these; the tables differ on purpose.",
        "",
        *_grouped((reason, case.name) for case in CASES for reason in (reason_not_in_tables(case),) if reason),
        "",
        "## What the reference leaves open, and how Kafka's code decides it",
        "",
        *(f"- {decision}" for decision in json.loads((_DATA / "decisions.json").read_text("utf-8"))),
        "",
        "## Next",
        "",
        "- [Rules](rules.md): what the job holds to",
        "- [Reference 9](../reference/09-kafka-tests.md): what each of Kafka's tests asks for",
        "- [Tests](testing.md): all other tests",
    ]
    return "\n".join(lines) + "\n"


def _classes(tested: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """Yield a line for each Kafka class."""
    for (section, kafka_class), of_class in groupby(rows(), key=lambda row: (row.section, row.kafka_class)):
        found = list(of_class)
        where = sorted({place for row in found for place in tested.get((row.kafka_class, row.name), [])})
        done = [row for row in found if (row.kafka_class, row.name) in tested]
        required = sum(row.is_required for row in found)
        done_required = sum(row.is_required for row in done)
        name = "cases that Kafka's tests lack" if kafka_class == _FURTHER else kafka_class
        cells = (section, name, required, done_required, len(done) - done_required, ", ".join(where))
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _grouped(reasons: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a line for each reason with its test names."""
    names: dict[str, dict[str, None]] = {}
    for reason, name in reasons:
        names.setdefault(reason, {})[name] = None
    return (f"- {reason}: {', '.join(of)}" for reason, of in names.items())


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
