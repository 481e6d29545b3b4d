"""The two group coordinators that brokers have had; they differ in what they hold (reference 5.9)."""

from __future__ import annotations

from typing import Literal, TypeAlias

Coordinator: TypeAlias = Literal["classic", "new"]
