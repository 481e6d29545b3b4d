"""A Dockerfile as data: its stages, each with the steps that stand in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_KNOWN = ("ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
Step = tuple[str, str]


@dataclass
class Stage:
    """A stage: its name or number; the image or earlier stage from which it begins; its steps, keyword and rest."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)

    def last(self, keyword: str) -> str | None:
        """The rest of the last step of a kind, which is the one that holds."""
        return next((rest for word, rest in reversed(self.steps) if word == keyword), None)


def stages_of(file: Path) -> list[Stage]:
    """Read the stages in their order; ValueError for a step that nobody here knows."""
    found: list[Stage] = []
    for keyword, rest in _steps(file.read_text("utf-8")):
        if keyword == "FROM":
            image, *name = re.split(r"\s+AS\s+", rest)
            found.append(Stage(name[0] if name else str(len(found)), image))
        elif not found or keyword not in _KNOWN:
            raise ValueError(f"{keyword} {rest}")
        else:
            found[-1].steps.append((keyword, rest))
    return found


def copied_from(rest: str) -> str | None:
    """Return the stage from which a COPY takes, None where it is the context."""
    match = re.match(r"--from=(\S+)", rest)
    return match[1] if match else None


def _steps(text: str) -> Iterator[Step]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for step in "\n".join(lines).replace("\\\n", "").splitlines():
        keyword, rest = step.split(maxsplit=1)
        yield keyword, rest.strip()
