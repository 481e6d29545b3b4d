"""The image without a container engine: the steps of the Dockerfile, done one after the other in an empty folder.

The folder stands for the root, `/`. Each RUN is a script as it is written, with no program at hand but those that the
base image has; COPY copies, from the context what .dockerignore leaves, from an earlier stage what is named. What a
stage left lying about is gone in the next one. Steps that need root are not run: `Builder.skipped` has them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testkit.dockerfile import Stage, Step, copied_from, stages_of

# Of what Debian's slim image has (coreutils, dash, bash, sed, grep, findutils, tar, gzip). It has no ps, curl or java.
_PROGRAMS = """
    bash sh sed grep xargs find tar gzip env cat cp ln ls mkdir mv rm basename dirname readlink realpath tr cut head
    tail sort uname id test chmod printf echo sleep date mktemp wc expr nice nohup hostname touch tee getconf
"""
_OF_THE_TESTS = re.compile("(JAVA|PYTHON|SPARK|OFFSETSTREAM_TEST)_?.*|VIRTUAL_ENV|OFFSETSTREAM_CACHE|PATH|HOME|PWD")
_ABSOLUTE = re.compile(r"""(?:^|[\s"'=])(/[a-z][\w./-]*)""")
_OF_ROOT = "useradd "


@dataclass(frozen=True)
class BuiltImage:
    """Where the root is, and what is set for a container: environment, working directory, entry point, health check."""

    root: Path
    environment: dict[str, str]
    folder: Path
    entrypoint: list[str]
    health: list[str]

    def command(self, words: Sequence[str], **more: str) -> list[str]:
        """What runs a program of the image in its environment, and in nothing of the tests'."""
        program = shutil.which(words[0], path=self.environment["PATH"])
        assert program, f"the image has no {words[0]}"
        variables = [f"{name}={value}" for name, value in {**self.environment, **more}.items()]
        return ["env", "--ignore-environment", *variables, program, *words[1:]]


@dataclass
class _Made:
    """A stage that is made: what holds at its end."""

    environment: dict[str, str]
    folder: str = "/"
    steps: list[Step] = field(default_factory=list)


class Builder:
    """Builds the stages of a Dockerfile within a folder, whose `root` is that of the stage which was built last."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._stages = {stage.name: stage for stage in stages_of(file)}
        self._context, self._folder, self._root = file.parent, folder, folder / "root"
        self._made: dict[str, _Made] = {}
        self.skipped: list[str] = []
        _link_programs(folder / "bin")
        (folder / "home").mkdir()

    def build(self, name: str | None = None) -> BuiltImage:
        """Build a stage with all that it needs; the last one where none is named."""
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
        assert not _ABSOLUTE.search(script), f"a RUN names a path, which is another one here: {script}"
        cwd, env = self._place(made.folder), {**made.environment, **_trusted()}
        done = subprocess.run(["sh", "-c", script], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (script, done.stdout, done.stderr)

    def _place(self, path: str) -> Path:
        return _within(self._root, path)


def health_of(file: Path) -> list[str]:
    """Return the command by which the file's image tells whether it is well."""
    return next(found for stage in stages_of(file) if (found := _health(stage)))


def _health(stage: Stage) -> list[str]:
    found: list[str] = json.loads((stage.last("HEALTHCHECK") or "").partition("CMD ")[2] or "[]")
    return found


def _within(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _link_tree(source: Path, target: Path) -> None:
    """Copy a tree as hard links: nobody changes a file of a stage that is made, and each has a gigabyte."""
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def _trusted() -> dict[str, str]:
    """Have the Java that comes by pip trust whom this machine's Java does: a proxy, where there is one."""
    java = shutil.which("java")
    store = Path(java).resolve().parents[1] / "lib" / "security" / "cacerts" if java else Path("none")
    return {"JAVA_TOOL_OPTIONS": f"-Djavax.net.ssl.trustStore={store}"} if store.is_file() else {}


def _link_programs(folder: Path) -> None:
    folder.mkdir()
    for name in _PROGRAMS.split():
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    own = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python", "python3"):  # no links: by one Python would look for its library beside it
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(own))} "$@"\n')
        (folder / name).chmod(0o755)
