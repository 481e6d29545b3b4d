"""The chart and the manifests without a cluster: rendered by Helm, held against the schemas that a cluster would use.

Both programs come by the Go module proxy, Kubernetes' schemas by PyPI, and those of operators are in their Go modules.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from testkit.programs import go_module, go_program, python_packages

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "offsetstream"
RELEASE = "offsetstream"
HELM = ("helm.sh/helm/v4/cmd/helm", "v4.3.2")
KUBECONFORM = ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0")
SCHEMAS = "kubernetes-validate==1.37.0"
VERSIONS = ("1.25.0", "1.37.0")  # the oldest and the newest of Kubernetes whose schemas these are
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
    """What a program says of what it does not take."""


def helm(*arguments: str | Path, given: str = "") -> str:
    """Run it, without a cluster, and return what it says; RefusedError with that where it refuses."""
    return _said(go_program(*HELM), arguments, given)


def rendered(values: Mapping[str, Any], *options: str) -> list[Manifest]:
    """Return what the chart makes of these values; RefusedError where it or its schema refuses them."""
    text = helm("template", RELEASE, CHART, "--values", "-", *options, given=yaml.safe_dump(dict(values)))
    return [each for each in yaml.safe_load_all(text) if each]


def conforms(manifests: Iterable[Manifest] | str, schemas: Path, version: str) -> int:
    """Hold manifests against the schemas of a version of Kubernetes, and count them; RefusedError for a bad one."""
    text = manifests if isinstance(manifests, str) else yaml.safe_dump_all(manifests)
    kinds = schemas / "{{.NormalizedKubernetesVersion}}" / "{{.ResourceKind}}{{.KindSuffix}}.json"
    options = ("-strict", "-summary", "-output", "json", "-kubernetes-version", version, "-schema-location", str(kinds))
    found = json.loads(_said(go_program(*KUBECONFORM), options, text))["summary"]
    assert not found["skipped"], found
    return int(found["valid"])


def write_schemas(folder: Path) -> Path:
    """Write the schemas as kubeconform finds them, and return the folder: one for each version of Kubernetes."""
    shipped = python_packages(SCHEMAS) / "kubernetes_validate" / "kubernetes-json-schema"
    own = dict(_of_operators())
    for version in VERSIONS:
        target = folder / f"v{version}"
        target.mkdir()
        for file in (shipped / f"v{version}-local-strict").glob("*.json"):
            # They name each other, and themselves, by addresses where nobody answers.
            schema = json.loads(file.read_text("utf-8").replace('"/api/_definitions.json#', '"_definitions.json#'))
            schema.pop("$id", None)
            (target / file.name).write_text(json.dumps(schema), "utf-8")
        for name, schema in own.items():
            (target / name).write_text(json.dumps(schema), "utf-8")
    return folder


def _of_operators() -> Iterable[tuple[str, Manifest]]:
    """Yield the schemas of operators' kinds, by the names of their files."""
    for module, file in OPERATORS.items():
        declared = yaml.safe_load((go_module(*module) / file).read_text("utf-8"))["spec"]
        for version in declared["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            meta = "_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
            schema["properties"]["metadata"] = {"$ref": meta}
            group = declared["group"].partition(".")[0]
            yield f"{declared['names']['singular']}-{group}-{version['name']}.json", schema


def _strict(schema: Any) -> Any:
    """Return a schema of a resource definition that takes no field which it does not name, as a cluster would not."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(each) for key, each in schema.items()}
    is_open = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & strict.keys()
    if isinstance(strict.get("properties"), dict) and strict.get("type") == "object" and not is_open:
        strict["additionalProperties"] = False
    return strict


def _said(program: Path, arguments: Iterable[str | Path], given: str) -> str:
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RefusedError(done.stdout + done.stderr)
    return done.stdout
