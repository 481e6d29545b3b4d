"""Every row of reference 9 that must be tested is, or says why it does not apply (docs/development/conformance.md)."""

from __future__ import annotations

from pathlib import Path

from tests.conformance import report
from tests.conformance.cases import CASES


def test_every_required_row_is_tested_or_has_a_reason() -> None:
    tested, reasons = report.tests(), report.not_applicable()
    required = {(row.kafka_class, row.name) for row in report.rows() if row.is_required}
    assert required - tested.keys() - reasons.keys() == set()
    assert tested.keys() & reasons.keys() == set()
    assert reasons.keys() <= required
    assert len(reasons) <= len(required) / 10


def test_every_case_belongs_to_a_row() -> None:
    rows = report.rows()
    strays = [
        (case.kafka_class, case.name)
        for case in CASES
        if case.kafka_class != "9.6" and not any((r.kafka_class, r.name) == (case.kafka_class, case.name) for r in rows)
    ]
    assert strays == []


def test_the_page_is_up_to_date() -> None:
    assert Path(report.PAGE).read_text("utf-8") == report.page(), "run: python -m tests.conformance.report"


def test_names_of_functions() -> None:
    assert report.function_name("testLoadOffsetsWithoutGroup") == "test_load_offsets_without_group"
    assert report.function_name("deserializeOldVersion") == "test_deserialize_old_version"
    assert report.function_name("testOnLoadedWithNoTTLSet") == "test_on_loaded_with_no_ttl_set"
