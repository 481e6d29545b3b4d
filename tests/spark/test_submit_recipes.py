"""spark-submit and the job accept the spark-submit lines in docs, which name the same jars as our code."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from offsetstream.cli.submitted import materialize_offsets
from offsetstream.spark.session import CONNECTORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "spark-submit.md").read_text("utf-8")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
BLOCKS = _BLOCK.findall(PAGE)
LINES = [
    shlex.split(text.replace("$PWD/", "").replace("\\\n", ""))
    for kind, text in BLOCKS
    if not kind and "spark-submit " in text
]


def parts(line: list[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the part before spark-submit, its own options, and the job's options."""
    at = next(n for n, word in enumerate(line) if word.endswith("spark-submit"))
    job = next(n for n, word in enumerate(line) if word.endswith("materialize_offsets.py"))
    own = line[at + 1 : job]
    assert len(own) % 2 == 0
    return line[: at + 1], dict(zip(own[::2], own[1::2], strict=True)), line[job + 1 :]


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The spark-submit options, from its help."""
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["spark-submit", "--help"]
    shown = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, check=False)
    return set(re.findall(r"--[a-z-]+", shown.stdout + shown.stderr))


def test_spark_submit_knows_its_options(known: set[str]) -> None:
    assert len(LINES) == 4
    for line in LINES:
        _, options, _ = parts(line)
        assert options.keys() <= known
        assert options["--packages"] == ",".join(CONNECTORS["4.0"])


def test_the_job_knows_its_options() -> None:
    for line in LINES:
        *_, arguments = parts(line)
        job = materialize_offsets
        given = job.make_context("materialize_offsets", arguments, **job.context_settings).params
        assert given["checkpoint"] == given["tables"].replace("offsets", "checkpoints")


def test_a_local_driver_uses_the_spark_submit_of_the_environment() -> None:
    first, *_ = LINES
    assert parts(first)[0] == ["PYSPARK_PYTHON=.venv/bin/python", ".venv/bin/spark-submit"]


def test_every_pyspark_release_has_its_jars() -> None:
    assert dict(re.findall(r"^\| (\d\.\d) \| `(.*?)` \|$", PAGE, re.MULTILINE)) == {
        release: ",".join(coordinates) for release, coordinates in CONNECTORS.items()
    }


def test_the_spark_operator_manifest_has_the_same_recipe() -> None:
    spec = yaml.safe_load((ROOT / "deploy" / "spark-application.yaml").read_text("utf-8"))["spec"]
    assert spec["deps"]["packages"] == [*CONNECTORS["4.0"], "org.apache.hadoop:hadoop-aws:3.4.1"]
    assert spec["sparkVersion"].startswith("4.0.")
    *_, on_kubernetes = LINES
    assert spec["mainApplicationFile"] in on_kubernetes
    job = materialize_offsets
    given = job.make_context("materialize_offsets", list(spec["arguments"]), **job.context_settings).params
    assert given["tables"] == "s3a://lake/kafka/offsets"
    assert [given["metrics_port"]] == [each["containerPort"] for each in spec["driver"]["ports"]]
    (secret,) = spec["driver"]["secrets"]
    assert given["command_config"] == f"{secret['path']}/client.properties"
