"""The record layouts of each Kafka release."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from offsetstream.codec.record_layouts import Shape, record_types
from testkit.codec_records import Layout, older_layouts, present_layouts, shape_of
from tests.oracle.kafka_classes import GROUP_MESSAGES


@dataclass(frozen=True)
class Case:
    """A layout in a Kafka release."""

    release: str
    layout: Layout

    def __str__(self) -> str:
        older = "" if self.layout.older < 0 else f"-older{self.layout.older}"
        return f"{self.release}-type{self.layout.type}-v{self.layout.version}{older}"

    @property
    def shape(self) -> Shape:
        return shape_of(self.layout.shape, self.release)

    def message(self, part: str) -> str:
        name = record_types()[self.layout.type].name
        if self.release < "4.1":
            name = name.replace("Legacy", "")
        return f"{GROUP_MESSAGES}.{name}{part}"

    @property
    def key_version(self) -> int:
        """Up to 4.0 the version of a key was its type."""
        return self.layout.type if self.release < "4.1" else 0


def _since_4_1() -> list[Layout]:
    return [layout for layout in present_layouts() if layout.type != 9 and (layout.type or not layout.version)]


def _cases() -> list[Case]:
    in_4_0 = [layout for layout in present_layouts() if (layout.type < 15 and layout.type != 11) or layout.type == 16]
    in_3_9 = [layout for layout in present_layouts() if layout.type < 9]
    cases = [Case("4.3.1", layout) for layout in _since_4_1()]
    cases += [Case("4.0.2", layout) for layout in in_4_0] + [Case("3.9.2", layout) for layout in in_3_9]
    return cases + [Case("4.0.2", layout) for layout in older_layouts() if layout.type == 11]


CASES = _cases()
NEWEST = [Case("4.4.0", layout) for layout in _since_4_1()]
NIGHTLY = [pytest.param(case, marks=pytest.mark.nightly) for case in NEWEST]
EARLY_ACCESS = [Case("3.7.2", layout) for layout in older_layouts() if layout.type != 11]
