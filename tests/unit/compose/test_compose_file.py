"""docker-compose.yml beyond its grammar: versions, ports, health checks, mounts, passwords and our own commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, cast
from urllib.parse import urlsplit

import click
import pytest
import yaml

import offsetstream
from offsetstream.cli.main import main
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.embedded.ports import LOOPBACK
from offsetstream.metrics.job_metrics import JobMetrics
from offsetstream.metrics.server import serving
from offsetstream.stream.settings import JobSettings
from tests.release.image import COMPOSE, DOCKERFILE, ROOT, Service, compose, services, stages_of, unescaped

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXACT = re.compile(r"[a-z0-9./-]+:(v?\d+\.\d+\.\d+(rc\d+)?(\.dev\d+)?|RELEASE\.\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)")
SECRET = re.compile("PASS|SECRET|TOKEN|CREDENTIAL|_KEY$")
OURS = {name: service for name, service in services().items() if service.is_ours}
COMMANDS = {
    name: service.command[service.command.index("offsetstream") + 1 :]
    for name, service in OURS.items()
    if "offsetstream" in service.command
}


def once(service: Service) -> bool:
    """Whether the service ends by itself."""
    return service.spec.get("restart") == "no"


def awaited(condition: str) -> set[str]:
    """The services that another service waits for under this condition."""
    conditions = (service.spec.get("depends_on", {}) for service in services().values())
    return {name for each in conditions for name, how in each.items() if how["condition"] == condition}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    else:
        yield str(value)


def parsed(words: list[str]) -> click.Context:
    """Parse a command line as `main` does, including the command's own options. Nothing is run."""
    context, command = click.Context(main, info_name="offsetstream"), cast("click.Command", main)
    while isinstance(command, click.Group):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, name
        context, command = click.Context(found, info_name=name, parent=context), found
    return command.make_context(command.name, words, parent=context.parent)


def test_images_have_exact_versions() -> None:
    images = {name: service.image for name, service in services().items()}
    assert {name: image for name, image in images.items() if not EXACT.fullmatch(image)} == {}
    assert images["kafka"].endswith(f":{DEFAULT_VERSION}")
    assert {OURS[name].image.partition(":")[2] for name in OURS} == {offsetstream.__version__}
    assert all("build" in service.spec for service in OURS.values())  # otherwise a registry would be asked for it


def test_the_dockerfile_has_an_exact_base_version_and_named_stages() -> None:
    stages = stages_of(DOCKERFILE)
    names = {stage.name for stage in stages}
    (image,) = {stage.base for stage in stages} - names
    version = re.fullmatch(r"python:(\d+\.\d+)\.\d+-slim-bookworm", image)
    assert version and version[1] == PROJECT["requires-python"].removeprefix(">=")
    built = [service.spec["build"] for service in OURS.values()]
    assert {each["target"] for each in built if isinstance(each, dict)} <= names
    assert stages[-1].base == "job"
    assert stages[-2].base == "job"  # the S3 variant is the same image with more jars


def test_the_image_does_not_run_as_root() -> None:
    (job,) = (stage for stage in stages_of(DOCKERFILE) if stage.name == "job")
    assert job.last("USER") == "offsetstream"
    for service in services().values():
        assert "user" not in service.spec
        assert not service.spec.get("privileged")
        assert service.spec["cap_drop"] == ["ALL"]
        assert service.spec["security_opt"] == ["no-new-privileges:true"]


def test_ports_are_published_on_this_machine_only() -> None:
    published = [port for service in services().values() for port in service.ports.values()]
    assert {address for address, _ in published} == {"127.0.0.1"}
    assert len({port for _, port in published}) == len(published) >= 5
    assert not any(service.spec.get("network_mode") == "host" for service in services().values())


def test_every_service_has_a_health_check_or_ends_and_is_awaited() -> None:
    for name, service in services().items():
        assert bool(service.health) != once(service), name
        assert not once(service) or name in awaited("service_completed_successfully"), name
    assert awaited("service_healthy") <= {name for name, service in services().items() if service.health}
    assert awaited("service_started") == set()


def test_no_service_waits_for_one_that_a_profile_excludes() -> None:
    for name, service in services().items():
        for other in service.spec.get("depends_on", {}):
            assert set(services()[other].spec.get("profiles", [])) <= set(service.spec.get("profiles", [])), name


def test_every_service_has_a_memory_limit() -> None:
    assert all(service.spec["deploy"]["resources"]["limits"]["memory"] for service in services().values())


def test_mounted_files_exist() -> None:
    sources = {source for service in services().values() for source in service.mounts.values()}
    files = {source for source in sources if source.startswith(".")}
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert sources - files == set(compose()["volumes"])


def test_lasting_data_is_in_a_volume() -> None:
    kept = {("kafka", "KAFKA_LOG_DIRS"): services()["kafka"].environment["KAFKA_LOG_DIRS"]}
    kept |= {
        ("job", option): str(parsed(COMMANDS["job"]).params[option]).rpartition("/")[0]
        for option in ("tables", "checkpoint")
    }
    for (name, _), place in kept.items():
        assert place in services()[name].mounts


def test_no_password_is_in_the_file() -> None:
    for service in services().values():
        for name, value in service.environment.items():
            assert not SECRET.search(name) or (name.endswith("_FILE") and value.startswith("/secrets/")), name
    # Nor as a variable's default: there are no variables.
    assert [text for text in texts(compose()) if unescaped(text) is None] == []
    assert not re.search("admin:|minioadmin|changeme", COMPOSE.read_text("utf-8"))


def test_services_with_passwords_get_them_from_secrets() -> None:
    """MinIO and Grafana have well-known default passwords unless another one is set."""
    assert "MINIO_ROOT_PASSWORD_FILE" in services()["s3"].environment
    assert "GF_SECURITY_ADMIN_PASSWORD__FILE" in services()["grafana"].environment
    for name in ("s3", "grafana"):
        assert "secrets" in services()[name].spec["depends_on"]


def test_all_our_services_but_one_run_commands() -> None:
    assert OURS.keys() - COMMANDS.keys() == {"secrets"}


@pytest.mark.parametrize("name", COMMANDS)
def test_our_commands_parse(name: str) -> None:
    context = parsed(COMMANDS[name])
    if context.command.name == "run":
        settings = JobSettings(**context.params, properties={})
        assert settings.metrics_address == "0.0.0.0"  # noqa: S104 - of the container: published on the loopback alone
        asked = re.search(r":(\d+)/", " ".join(services()[name].health))
        assert asked
        assert [settings.metrics_port] == list(services()[name].ports) == [int(asked[1])]
    if context.command.name == "serve":
        assert context.params["host"] == "0.0.0.0"  # noqa: S104 - likewise
        assert [context.params["port"]] == list(services()[name].ports)


def test_the_job_answers_to_the_names_that_prometheus_scrapes() -> None:
    """Over real sockets, with the file's settings; other names are refused."""
    scrapes = yaml.safe_load((ROOT / "monitoring" / "prometheus" / "prometheus.yml").read_text("utf-8"))[
        "scrape_configs"
    ]
    targets = [target for scrape in scrapes for each in scrape.get("static_configs", []) for target in each["targets"]]
    names = [name for scrape in scrapes for each in scrape.get("dns_sd_configs", []) for name in each["names"]]
    jobs = {name for name, words in COMMANDS.items() if words[0] == "run"}
    hosts = {host.partition(":")[0]: host for host in (*targets, *names)}
    assert jobs <= hosts.keys()
    for name in jobs:
        settings = JobSettings(**parsed(COMMANDS[name]).params, properties={})
        metrics = JobMetrics()
        with serving(LOOPBACK, 0, metrics.registry, metrics.standing, settings.metrics_allowed_host) as url:
            for host, status in ((hosts[name], 200), (urlsplit(url).netloc, 200), ("rebound.example.com", 421)):
                assert answers(url, host) == status


def answers(url: str, host: str) -> int:
    """The status of /metrics for a request to this name."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    with closing(connection):
        connection.request("GET", "/metrics", headers={"Host": host})
        return connection.getresponse().status


def test_an_unknown_command_is_detected() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed([*COMMANDS["job"], "--no-such-option"])
    with pytest.raises(click.BadParameter):
        parsed([*COMMANDS["workload"], "--pause", "often"])


def test_our_environment_variables_are_known() -> None:
    """delta-rs variables must be ones that docs/how-to/stores.md describes."""
    told = (ROOT / "docs" / "how-to" / "stores.md").read_text("utf-8")
    for service in OURS.values():
        assert [name for name in service.environment if name not in told] == []


def test_containers_reach_each_other_at_ports_that_exist() -> None:
    """Checks each host and port in commands, environments and mounted files against the services that listen there."""
    listens = {name: set(service.ports) for name, service in services().items()}
    listens["kafka"] |= {
        int(port) for port in re.findall(r":(\d+)", services()["kafka"].environment["KAFKA_LISTENERS"])
    }
    mounted = [yaml.safe_load(file.read_text("utf-8")) for file in (ROOT / "monitoring").rglob("*.yml")]
    spoken = re.compile(rf"(?<![\w.-])(?<!\w/)({'|'.join(services())}):(\d+)")
    found = {(name, int(port)) for text in texts([compose(), *mounted]) for name, port in spoken.findall(text)}
    assert {("kafka", 19092), ("job", 9464), ("prometheus", 9090), ("s3", 9000)} <= found
    assert {(name, port) for name, port in found if port not in listens[name]} == set()


def test_prometheus_and_grafana_find_their_files() -> None:
    monitoring = ROOT / "monitoring"
    prometheus = yaml.safe_load((monitoring / "prometheus" / "prometheus.yml").read_text("utf-8"))
    assert [rule for rule in prometheus["rule_files"] if not (monitoring / "prometheus" / rule).is_file()] == []
    (provider,) = yaml.safe_load(
        (monitoring / "grafana" / "provisioning" / "dashboards" / "offsetstream.yml").read_text("utf-8")
    )["providers"]
    here = services()["grafana"].mounts[provider["options"]["path"]]
    assert list((ROOT / here).glob("*.json"))
