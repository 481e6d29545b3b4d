"""The chart without Helm: it has the image's version and user, and takes the documented values.

tests/doors/test_kubernetes.py renders it in the nightly tests.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml

from tests.release.image import DOCKERFILE, ROOT, services

CHART = ROOT / "deploy" / "helm" / "offsetstream"
PAGE = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "chart.md").read_text("utf-8")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
TEMPLATE = (CHART / "templates" / "clusters.yaml").read_text("utf-8")
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def schema() -> Any:
    read = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    kind = jsonschema.validators.validator_for(read)
    kind.check_schema(read)
    return kind(read)


def test_its_image_is_the_one_in_the_compose_file() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert f"{VALUES['image']['repository']}:{chart['appVersion']}" == services()["job"].image
    tagged = re.findall(r"registry\.example\.com/offsetstream:(\S+)", PAGE)
    assert set(tagged) == {chart["appVersion"]}


def test_it_runs_as_the_images_user_and_listens_where_the_image_says() -> None:
    image = DOCKERFILE.read_text("utf-8")
    for option in ("runAsUser", "runAsGroup", "fsGroup"):
        assert re.findall(rf"{option}: (\d+)", TEMPLATE) == re.findall(r"useradd --uid (\d+)", image)
    assert re.findall(r"containerPort: (\d+)", TEMPLATE) == re.findall(r"EXPOSE (\d+)", image)


def test_it_runs_the_same_commands_as_the_compose_file() -> None:
    """Except for the settings that all commands share: the chart puts these into the environment."""
    words = re.findall(r"^ {12}- (run|--\S+)", TEMPLATE, re.MULTILINE)
    ours = [word.partition("=")[0] for word in words]
    theirs = [word.partition("=")[0] for word in services()["job"].command[1:]]
    shared = [f"--{name.lower().replace('_', '-')}" for name in re.findall(r"name: OFFSETSTREAM_(\w+)", TEMPLATE)]
    assert {*ours, *shared} - {*theirs} == {"--config", "--command-config"}
    assert {*theirs} - {*ours, *shared} == {"--group-metrics"}  # these are settings
    seconds = re.findall(r"terminationGracePeriodSeconds: (\d+)", TEMPLATE)
    assert [f"{int(each) // 60}m" for each in seconds] == [services()["job"].spec["stop_grace_period"]]


@pytest.mark.parametrize("example", [VALUES, *EXAMPLES], ids=["defaults", "volume", "object store"])
def test_the_schema_accepts_the_documented_values(example: dict[str, Any]) -> None:
    assert [error.message for error in schema().iter_errors(example)] == []


def test_it_allows_the_names_of_its_service() -> None:
    (metrics,) = re.findall(r"^kind: Service\nmetadata:\n  name: (.+)$", TEMPLATE, re.MULTILINE)
    allowed = re.findall(r"--metrics-allowed-host=({{.+)$", TEMPLATE, re.MULTILINE)
    domains = ["", ".{{ $.Release.Namespace }}"]
    domains += [domains[-1] + end for end in (".svc", ".svc.cluster.local")]
    assert allowed == [metrics + domain for domain in domains]


def test_every_value_is_documented_and_in_the_schema() -> None:
    known = schema().schema["properties"].keys() - {"global"}
    assert known == VALUES.keys()
    table = REFERENCE.partition("## Values")[2]
    assert [name for name in known if f"`{name}" not in table] == []
    assert [name for name in schema().schema["definitions"]["cluster"]["properties"] if f".{name}`" not in table] == []
