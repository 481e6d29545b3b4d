"""The Helm chart's output checked against the schemas of Kubernetes and of the operators whose kinds it uses.

The manifest for Kubeflow's Spark operator is checked too. There is no cluster: tests/kafka/test_chart.py runs what a
pod would run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.kubernetes import (
    CHART,
    DEPLOY,
    VERSIONS,
    Manifest,
    RefusedError,
    conforms,
    helm,
    rendered,
    write_schemas,
)

pytestmark = pytest.mark.nightly

PAGE = (DEPLOY.parent / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
VOLUME, OBJECT_STORE = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
OF_ALL = ["ConfigMap", "Deployment", "Service"]
EU = {"bootstrapServer": "broker:9092"}
EVERYTHING = {
    "clusters": {
        "eu": EU | {"clientProperties": "security.protocol=SSL\n", "resources": {"requests": {"cpu": "4"}}},
        "us": EU | {"existingClaim": "mine", "settings": '[run]\ntrigger = "1 minute"\n'},
    },
    "image": {"repository": "r.example.com/o", "tag": "2.0.0", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "settings": "[run]\n",
    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "envFrom": [{"secretRef": {"name": "s"}}],
    "volume": {"size": "1Ti", "storageClass": "fast", "accessMode": "ReadWriteMany"},
    "serviceAccount": "lake",
    "serviceMonitor": {"enabled": True, "interval": "10s", "labels": {"release": "p"}},
    "metricsAllowedHosts": ["ingress.example.com"],
    "podAnnotations": {"a/b": "c"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
}
APPLICATION = (DEPLOY / "spark-application.yaml").read_text("utf-8")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_schemas(tmp_path_factory.mktemp("schemas"))


def kinds(manifests: list[Manifest], cluster: str) -> list[str]:
    return sorted(each["kind"] for each in manifests if each["metadata"]["name"].split("-")[1:2] == [cluster])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [VOLUME, OBJECT_STORE, EVERYTHING], ids=["volume", "object store", "everything"])
def test_the_charts_output_is_valid_for_kubernetes(values: dict[str, Any], version: str, schemas: Path) -> None:
    manifests = rendered(values)
    assert conforms(manifests, schemas, version) == len(manifests) >= 4


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifest_is_valid_for_the_spark_operator(version: str, schemas: Path) -> None:
    assert conforms(APPLICATION, schemas, version) == 1


def test_each_cluster_has_its_objects() -> None:
    assert kinds(rendered(VOLUME), "eu") == sorted([*OF_ALL, "PersistentVolumeClaim"])
    assert kinds(rendered(OBJECT_STORE), "eu") == OF_ALL
    everything = rendered(EVERYTHING)
    assert kinds(everything, "eu") == sorted([*OF_ALL, "PersistentVolumeClaim", "Secret"])
    assert kinds(everything, "us") == OF_ALL
    assert [each["metadata"]["name"] for each in everything if each["kind"] == "ServiceMonitor"] == ["offsetstream"]


def test_selectors_match_the_single_pod_of_each_cluster() -> None:
    manifests = rendered(EVERYTHING)
    of_kind = {kind: [each for each in manifests if each["kind"] == kind] for kind in ("Deployment", "Service")}
    pods = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in of_kind["Deployment"]}
    for each in of_kind["Deployment"]:
        assert selected(each["spec"]["selector"]["matchLabels"], pods) == [each["metadata"]["name"]]
    for each in of_kind["Service"]:
        assert selected(each["spec"]["selector"], pods) == [each["metadata"]["name"]]
    (monitor,) = (each for each in manifests if each["kind"] == "ServiceMonitor")
    services = {each["metadata"]["name"]: each["metadata"]["labels"] for each in of_kind["Service"]}
    assert selected(monitor["spec"]["selector"]["matchLabels"], services) == list(services)


def test_the_job_allows_the_names_of_its_service() -> None:
    """And those of the values. How a Service is called in a namespace: its name, name.namespace.svc, and so on."""
    manifests = rendered(VOLUME | {"metricsAllowedHosts": ["ingress.example.com"]}, "--namespace", "lake")
    (args,) = (
        each["spec"]["template"]["spec"]["containers"][0]["args"]
        for each in manifests
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "offsetstream-eu")
    )
    allowed = [value for name, _, value in (each.partition("=") for each in args) if name == "--metrics-allowed-host"]
    ends = ("", ".lake", ".lake.svc", ".lake.svc.cluster.local")
    assert allowed == [*(f"offsetstream-eu{end}" for end in ends), "ingress.example.com"]


def selected(labels: dict[str, str], objects: dict[str, dict[str, str]]) -> list[str]:
    return [name for name, own in objects.items() if labels.items() <= own.items()]


def test_changed_settings_change_the_pod() -> None:
    def template(settings: str) -> Any:
        (each,) = (
            one for one in rendered({"clusters": {"eu": EU}, "settings": settings}) if one["kind"] == "Deployment"
        )
        return each["spec"]["template"]

    assert template("[run]\n") == template("[run]\n") != template("[run]\nonce = false\n")


def test_helm_lint_reports_nothing() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART, "--set", "clusters.eu.bootstrapServer=broker:9092")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "Name a Kafka cluster: --set clusters.NAME.bootstrapServer=HOST:PORT"),
        ({"clusters": {"eu": {}}}, "missing property 'bootstrapServer'"),
        ({"clusters": {"eu": EU | {"bootstrapServers": "x"}}}, "'bootstrapServers' not allowed"),
        ({"clusters": {"EU_1": EU}}, "'EU_1'"),
        ({"clusters": {"eu": EU | {"tables": "s3a://a"}}}, "properties 'checkpoint' required, if 'tables' exists"),
        ({"clusters": {"eu": EU | {"clientSecret": "a", "clientProperties": "b"}}}, "/clusters/eu"),
        (
            {"clusters": {name: EU | {"existingClaim": "kafka"} for name in ("eu", "us")}},
            "The clusters eu and us would write to the same tables: kafka",
        ),
        ({"clusters": {"eu": EU}, "volume": {"size": 20}}, "got number, want string"),
        ({"clusters": {"eu": EU}, "resource": {}}, "'resource' not allowed"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(reason)):
        rendered(values)


def change(path: str, value: Any) -> Callable[[Manifest], None]:
    """Return a change to a manifest at a path of keys and indexes joined by dots."""

    def changed(manifest: Manifest) -> None:
        *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
        at: Any = manifest
        for key in parents:
            at = at[key]
        at[last] = value

    return changed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "path", "value", "reason"),
    [
        ("Deployment", "spec.replicas", "one", "at '/spec/replicas': got string"),
        ("Deployment", "spec.template.spec.containers.0.securityContext.readOnlyRootFileSystem", True, "not allowed"),
        ("Deployment", "spec.template.spec.containers.0.livenessProbe.httpGet.port", None, "port"),
        ("Deployment", "spec.strategy.kind", "Recreate", "'kind' not allowed"),
        ("Deployment", "apiVersion", "apps/v1beta1", "could not find schema for Deployment"),
        ("Service", "spec.ports.0.port", "9464", "at '/spec/ports/0/port': got string"),
        ("PersistentVolumeClaim", "spec.size", "1Gi", "'size' not allowed"),
        ("ConfigMap", "kind", "ConfigMaps", "could not find schema for ConfigMaps"),
        ("ServiceMonitor", "spec.endpoints.0.interval", 10, "at '/spec/endpoints/0/interval': got number"),
        ("ServiceMonitor", "spec.endpoint", [], "'endpoint' not allowed"),
        ("ServiceMonitor", "metadata.label", {}, "'label' not allowed"),
        ("SparkApplication", "spec.driver.cores", "one", "at '/spec/driver/cores': got string"),
        ("SparkApplication", "spec.executor.replicas", 2, "'replicas' not allowed"),
        ("SparkApplication", "spec.restartPolicy.type", "Often", "must be one of"),
        ("SparkApplication", "apiVersion", "sparkoperator.k8s.io/v1", "could not find schema for SparkApplication"),
    ],
)
def test_a_broken_manifest_is_refused(
    kind: str, path: str, value: Any, reason: str, version: str, schemas: Path
) -> None:
    manifests = [*rendered(EVERYTHING), yaml.safe_load(APPLICATION)]
    broken = next(each for each in manifests if each["kind"] == kind)
    assert conforms([broken], schemas, version) == 1
    change(path, value)(broken)
    with pytest.raises(RefusedError, match=re.escape(reason)):
        conforms([broken], schemas, version)
