"""Renders the chart with Helm, and checks manifests against the schemas that a cluster would use, without a cluster.

Helm and kubeconform come from the Go module proxy, Kubernetes' schemas from PyPI, those of operators from Go modules.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from testkit.programs import go_module, go_program, python_packages

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "offsetstream"
RELEASE = "offsetstream"
HELM = ("helm.sh/helm/v4/cmd/helm", "v4.3.2")
KUBECONFORM = ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
SCHEMAS = "kubernetes-validate==1.37.0"
VERSIONS = ("1.25.0", "1.37.0")  # the oldest and the newest Kubernetes that the package of schemas has
OPERATORS = {
    ("github.com/kubeflow/spark-operator/v2", "v2.3.0"): (
        "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml"
    ),
    ("github.com/prometheus-operator/prometheus-operator", "v0.85.0"): (
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
    ),
}
Manifest = dict[str, Any]


class RefusedError(Exception):
    """A program refused its input; the text is what it printed."""


def helm(*arguments: str | Path, given: str = "") -> str:
    """Run Helm without a cluster, and return its output; RefusedError if it fails."""
    return _output(go_program(*HELM), arguments, given)


def rendered(values: Mapping[str, Any], *options: str) -> list[Manifest]:
    """Return the manifests of the chart with these values; RefusedError if it or its schema refuses them."""
    text = helm("template", RELEASE, CHART, "--values", "-", *options, given=yaml.safe_dump(dict(values)))
    return [each for each in yaml.safe_load_all(text) if each]


def conforms(manifests: Iterable[Manifest] | str, schemas: Path, version: str) -> int:
    """Check manifests against the schemas of a Kubernetes version, and count them; RefusedError for a bad one."""
    text = manifests if isinstance(manifests, str) else yaml.safe_dump_all(manifests)
    kinds = schemas / "{{.NormalizedKubernetesVersion}}" / "{{.ResourceKind}}{{.KindSuffix}}.json"
    options = ("-strict", "-summary", "-output", "json", "-kubernetes-version", version, "-schema-location", str(kinds))
    found = json.loads(_output(go_program(*KUBECONFORM), options, text))["summary"]
    assert not found["skipped"], found
    return int(found["valid"])


def write_schemas(folder: Path) -> Path:
    """Write the schemas where kubeconform looks for them: in a folder for each version. Return the parent folder."""
    shipped = python_packages(SCHEMAS) / "kubernetes_validate" / "kubernetes-json-schema"
    own = dict(_of_operators())
    for version in VERSIONS:
        target = folder / f"v{version}"
        target.mkdir()
        for file in (shipped / f"v{version}-local-strict").glob("*.json"):
            # Schemas refer to each other, and to themselves, by addresses that do not exist.
            schema = json.loads(file.read_text("utf-8").replace('"/api/_definitions.json#', '"_definitions.json#'))
            schema.pop("$id", None)
            (target / file.name).write_text(json.dumps(schema), "utf-8")
        for name, schema in own.items():
            (target / name).write_text(json.dumps(schema), "utf-8")
    return folder


def _of_operators() -> Iterable[tuple[str, Manifest]]:
    """Yield file name and schema of each kind that an operator defines."""
    for module, file in OPERATORS.items():
        declared = yaml.safe_load((go_module(*module) / file).read_text("utf-8"))["spec"]
        for version in declared["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            meta = "_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
            schema["properties"]["metadata"] = {"$ref": meta}
            group = declared["group"].partition(".")[0]
            yield f"{declared['names']['singular']}-{group}-{version['name']}.json", schema


def _strict(schema: Any) -> Any:
    """Return a copy of a schema that refuses unknown fields, as a cluster does."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(each) for key, each in schema.items()}
    is_open = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & strict.keys()
    if isinstance(strict.get("properties"), dict) and strict.get("type") == "object" and not is_open:
        strict["additionalProperties"] = False
    return strict


def _output(program: Path, arguments: Iterable[str | Path], given: str) -> str:
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(done.stdout + done.stderr)
    return done.stdout
