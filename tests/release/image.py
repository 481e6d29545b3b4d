"""Reads, builds and runs the image and docker-compose.yml without a container engine, as processes.

The folder of a build stands for the root, `/`. Each RUN runs its script unchanged, with only the programs of the base
image. COPY copies from the context without what .dockerignore excludes, or from an earlier stage. Other files of a
stage are not in the next one. Steps that need root are not run: `Builder.skipped` lists them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from testkit.waiting import SECONDS

_KNOWN = ("ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
Step = tuple[str, str]


@dataclass
class Stage:
    """A stage: name or number, the image or stage that it starts from, and its steps (keyword and rest)."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)

    def last(self, keyword: str) -> str | None:
        """Return the rest of the last step with this keyword: the last one counts."""
        return next((rest for word, rest in reversed(self.steps) if word == keyword), None)


def stages_of(file: Path) -> list[Stage]:
    """Return the stages in order; ValueError for an unknown step."""
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
    """Return the stage that a COPY copies from; None for the context."""
    match = re.match(r"--from=(\S+)", rest)
    return match[1] if match else None


def _steps(text: str) -> Iterator[Step]:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for step in "\n".join(lines).replace("\\\n", "").splitlines():
        keyword, rest = step.split(maxsplit=1)
        yield keyword, rest.strip()


# Programs of Debian's slim image (coreutils, dash, bash, sed, grep, findutils, tar, gzip). No ps, curl or java.
_PROGRAMS = """
    bash sh sed grep xargs find tar gzip env cat cp ln ls mkdir mv rm basename dirname readlink realpath tr cut head
    tail sort uname id test chmod printf echo sleep date mktemp wc expr nice nohup hostname touch tee getconf
"""
_OF_THE_TESTS = re.compile("(JAVA|PYTHON|SPARK|OFFSETSTREAM_TEST)_?.*|VIRTUAL_ENV|OFFSETSTREAM_CACHE|PATH|HOME|PWD")
_ABSOLUTE = re.compile(r"""(?:^|[\s"'=])(/[a-z][\w./-]*)""")
_OF_ROOT = "useradd "


@dataclass(frozen=True)
class BuiltImage:
    """The root folder and a container's settings: environment, working directory, entry point, health check."""

    root: Path
    environment: dict[str, str]
    folder: Path
    entrypoint: list[str]
    health: list[str]

    def command(self, words: Sequence[str], **more: str) -> list[str]:
        """Return the command that runs a program of the image, with only the image's environment."""
        program = shutil.which(words[0], path=self.environment["PATH"])
        assert program, f"the image has no {words[0]}"
        variables = [f"{name}={value}" for name, value in {**self.environment, **more}.items()]
        return ["env", "--ignore-environment", *variables, program, *words[1:]]


@dataclass
class _Made:
    """A built stage: its settings at its end."""

    environment: dict[str, str]
    folder: str = "/"
    steps: list[Step] = field(default_factory=list)


class Builder:
    """Builds the stages of a Dockerfile in a folder. `root` is the root of the last built stage."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._stages = {stage.name: stage for stage in stages_of(file)}
        self._context, self._folder, self._root = file.parent, folder, folder / "root"
        self._made: dict[str, _Made] = {}
        self.skipped: list[str] = []
        _link_programs(folder / "bin")
        (folder / "home").mkdir()

    def build(self, name: str | None = None) -> BuiltImage:
        """Build a stage (default: the last one) and the stages that it needs."""
        wanted = name or list(self._stages)[-1]
        self._need(wanted)
        self._begin_from(wanted)
        made = self._made[wanted]
        whole = Stage(wanted, "", made.steps)
        entrypoint = json.loads(whole.last("ENTRYPOINT") or "[]")
        return BuiltImage(self._root, made.environment, self._place(made.folder), entrypoint, _health(whole))

    def _need(self, name: str) -> None:
        stage = self._stages[name]
        for needed in (stage.base, *(copied_from(rest) for word, rest in stage.steps if word == "COPY")):
            if needed in self._stages and needed not in self._made:
                self._need(str(needed))
        self._make(stage)

    def _begin_from(self, name: str) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        if name in self._made:
            _link_tree(self._folder / name, self._root)
        else:
            self._root.mkdir()

    def _make(self, stage: Stage) -> None:
        self._begin_from(stage.base)
        base = self._made.get(stage.base) or _Made(self._first_environment())
        made = _Made(dict(base.environment), base.folder, [*base.steps, *stage.steps])
        for keyword, rest in stage.steps:
            if keyword == "ENV":
                for name, _, value in (pair.partition("=") for pair in shlex.split(rest)):
                    made.environment[name] = self._value(value, made.environment)
            elif keyword == "WORKDIR":
                made.folder = rest
                self._place(rest).mkdir(parents=True, exist_ok=True)
            elif keyword == "COPY":
                self._copy(rest, made.folder)
            elif keyword == "RUN":
                self._run(rest, made)
        self._made[stage.name] = made
        _link_tree(self._root, self._folder / stage.name)

    def _first_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not _OF_THE_TESTS.fullmatch(name)}
        return {**kept, "PATH": str(self._folder / "bin"), "HOME": str(self._folder / "home")}

    def _value(self, text: str, environment: dict[str, str]) -> str:
        value = re.sub(r"\$(\w+)", lambda name: environment[name[1]], text)
        is_of_the_image = value.startswith("/") and not value.startswith(str(self._folder))
        return str(self._place(value)) if is_of_the_image else value

    def _copy(self, rest: str, folder: str) -> None:
        *sources, target = [word for word in rest.split() if not word.startswith("--")]
        stage = copied_from(rest)
        for source in sources:
            found = _within(self._folder / stage, source) if stage else self._in_context(source)
            place = self._place(str(Path(folder) / target)) / (found.name if target.endswith("/") else "")
            place.parent.mkdir(parents=True, exist_ok=True)
            if stage:
                _link_tree(found, place)
            elif found.is_dir():
                shutil.copytree(found, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(found, place)

    def _in_context(self, source: str) -> Path:
        kept = (self._context / ".dockerignore").read_text("utf-8").splitlines()
        assert f"!{source}" in kept, f".dockerignore leaves {source} out"
        return self._context / source

    def _run(self, script: str, made: _Made) -> None:
        if script.startswith(_OF_ROOT):
            self.skipped.append(script)
            for path in _ABSOLUTE.findall(script):
                self._place(path).mkdir(parents=True)
            return
        assert not _ABSOLUTE.search(script), f"a RUN names an absolute path, outside of the build: {script}"
        cwd, env = self._place(made.folder), {**made.environment, **_trusted()}
        done = subprocess.run(["sh", "-c", script], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (script, done.stdout, done.stderr)

    def _place(self, path: str) -> Path:
        return _within(self._root, path)


def health_of(file: Path) -> list[str]:
    """Return the health check command of the file's image."""
    return next(found for stage in stages_of(file) if (found := _health(stage)))


def _health(stage: Stage) -> list[str]:
    found: list[str] = json.loads((stage.last("HEALTHCHECK") or "").partition("CMD ")[2] or "[]")
    return found


def _within(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _link_tree(source: Path, target: Path) -> None:
    """Copy a tree as hard links: a stage has a gigabyte, and never changes once it is built."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def _trusted() -> dict[str, str]:
    """Return settings with which pip's Java trusts the same authorities as this machine's Java, such as a proxy's."""
    java = shutil.which("java")
    store = Path(java).resolve().parents[1] / "lib" / "security" / "cacerts" if java else Path("none")
    return {"JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={store}"} if store.is_file() else {}


def _link_programs(folder: Path) -> None:
    folder.mkdir()
    for name in _PROGRAMS.split():
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    own = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python", "python3"):  # no links: through a link, Python would look for its library in this folder
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(own))} "$@"\n')
        (folder / name).chmod(0o755)


ROOT = Path(__file__).parents[2]
COMPOSE, DOCKERFILE = ROOT / "docker-compose.yml", ROOT / "Dockerfile"
OURS = "offsetstream"  # prefix of our image names
# Where this machine has a program of an image; all others have the same name here.
_ON_THIS_MACHINE = {"python": [sys.executable], "offsetstream": [sys.executable, "-m", "offsetstream"]}


@dataclass(frozen=True)
class Service:
    """A service of the file. Ours have the entry point of our image unless they name one."""

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
        """The container's command, entry point first; the entry points of other images are unknown."""
        entrypoint = self.spec.get("entrypoint", ["offsetstream"] if self.is_ours else [])
        return [unescaped(word) for word in (*entrypoint, *self.spec.get("command", []))]

    @property
    def environment(self) -> dict[str, str]:
        return {name: unescaped(str(value)) for name, value in self.spec.get("environment", {}).items()}

    @property
    def health(self) -> list[str]:
        """The health check command; [] if there is none."""
        test = [unescaped(word) for word in self.spec.get("healthcheck", {}).get("test", [])]
        assert not test or test[0] == "CMD", f"{self.name}: its health check is not a command"
        return test[1:]

    @property
    def ports(self) -> dict[int, tuple[str, int]]:
        """The address and host port of each published port."""
        published = (str(each).rsplit(":", 2) for each in self.spec.get("ports", []))
        return {int(inside): (address, int(outside)) for address, outside, inside in published}

    @property
    def mounts(self) -> dict[str, str]:
        """The volume, or the path in this repository, of each mount's path in the container."""
        return {place.split(":")[1]: place.split(":")[0] for place in self.spec.get("volumes", [])}


@cache
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return found


def services() -> dict[str, Service]:
    return {name: Service(name, spec) for name, spec in compose()["services"].items()}


def unescaped(text: object) -> str:
    """Return a text as the container gets it; AssertionError if it has a variable that users would set."""
    assert not re.search(r"(?<!\$)(?:\$\$)*\$[\w{]", str(text)), f"a variable: {text}"
    return str(text).replace("$$", "$")


@dataclass(frozen=True)
class Places:
    """Replaces the addresses, ports and paths of containers with local ones."""

    instead: Mapping[str, str]

    def of(self, text: str) -> str:
        for inside, here in self.instead.items():
            text = text.replace(inside, here)
        return text

    def words(self, command: list[str]) -> list[str]:
        return [self.of(word) for word in command]

    def command(self, words: list[str]) -> list[str]:
        """Return the command with local addresses and this machine's programs."""
        return [*_ON_THIS_MACHINE.get(words[0], words[:1]), *self.words(words[1:])]

    def environment(self, service: Service) -> dict[str, str]:
        return {name: self.of(value) for name, value in service.environment.items()}

    def is_well(self, health: list[str]) -> bool:
        """Run the health check like a container engine."""
        done = subprocess.run(
            self.command(health), capture_output=True, env={**os.environ}, check=False, timeout=SECONDS
        )
        return done.returncode == 0
