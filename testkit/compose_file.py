"""docker-compose.yml as data, and its services as processes of this machine: the same commands, at other places."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
COMPOSE, DOCKERFILE = ROOT / "docker-compose.yml", ROOT / "Dockerfile"
OURS = "offsetstream"  # how the names of our images begin
# What an image's programs are on this machine; others are run by their names.
_PROGRAMS = {"python": [sys.executable], "offsetstream": [sys.executable, "-m", "offsetstream"]}


@dataclass(frozen=True)
class Service:
    """A service with what the file says of it; `entrypoint` is ours where the image is and none is named."""

    name: str
    spec: Mapping[str, Any]

    @property
    def image(self) -> str:
        return str(self.spec["image"])

    @property
    def is_ours(self) -> bool:
        return self.image.startswith(OURS)

    @property
    def command(self) -> list[str]:
        """What the container runs, the entry point first, which of another image than ours is not known."""
        entrypoint = self.spec.get("entrypoint", ["offsetstream"] if self.is_ours else [])
        return [unescaped(word) for word in (*entrypoint, *self.spec.get("command", []))]

    @property
    def environment(self) -> dict[str, str]:
        return {name: unescaped(str(value)) for name, value in self.spec.get("environment", {}).items()}

    @property
    def health(self) -> list[str]:
        """The command that asks whether it is well; [] where there is none."""
        test = [unescaped(word) for word in self.spec.get("healthcheck", {}).get("test", [])]
        assert not test or test[0] == "CMD", f"{self.name}: a health check that is no command"
        return test[1:]

    @property
    def ports(self) -> dict[int, tuple[str, int]]:
        """The ports of the container that are published: at which address, and as which port."""
        published = (str(each).rsplit(":", 2) for each in self.spec.get("ports", []))
        return {int(inside): (address, int(outside)) for address, outside, inside in published}

    @property
    def mounts(self) -> dict[str, str]:
        """What is mounted, by where it is in the container: a volume's name, or a path of this repository."""
        return {place.split(":")[1]: place.split(":")[0] for place in self.spec.get("volumes", [])}


@cache
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return found


def services() -> dict[str, Service]:
    return {name: Service(name, spec) for name, spec in compose()["services"].items()}


def unescaped(text: object) -> str:
    """A text as the container gets it; AssertionError for a variable, whose value would be the user's to give."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$[\w{]", str(text)), f"a variable: {text}"
    return str(text).replace("$$", "$")


@dataclass(frozen=True)
class Places:
    """What stands on this machine for a container's addresses, ports and paths."""

    instead: Mapping[str, str]

    def of(self, text: str) -> str:
        for inside, here in self.instead.items():
            text = text.replace(inside, here)
        return text

    def words(self, command: list[str]) -> list[str]:
        return [self.of(word) for word in command]

    def command(self, words: list[str]) -> list[str]:
        """The same with this machine's programs."""
        return [*_PROGRAMS.get(words[0], words[:1]), *self.words(words[1:])]

    def environment(self, service: Service) -> dict[str, str]:
        return {name: self.of(value) for name, value in service.environment.items()}

    def is_well(self, health: list[str]) -> bool:
        """Ask as the container engine would."""
        done = subprocess.run(self.command(health), capture_output=True, env={**os.environ}, check=False, timeout=60)
        return done.returncode == 0
