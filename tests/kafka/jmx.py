"""A broker's own metrics: its MBeans, read by Kafka's own tool."""

from __future__ import annotations

from offsetstream.embedded.jvm import run_tool
from offsetstream.embedded.ports import LOOPBACK

_TOOL = "org.apache.kafka.tools.JmxTool"


def jmx_options(port: int) -> list[str]:
    """Return the JVM options that make a broker serve JMX on this port."""
    settings = {"port": port, "rmi.port": port, "authenticate": "false", "ssl": "false", "host": LOOPBACK}
    options = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in settings.items()]
    return [*options, f"-Djava.rmi.server.hostname={LOOPBACK}"]


def mbeans(port: int, *patterns: str) -> dict[str, float]:
    """Return the numeric attributes of all MBeans with these names, by `name:attribute`."""
    url = f"service:jmx:rmi:///jndi/rmi://{LOOPBACK}:{port}/jmxrmi"
    names = [argument for each in patterns for argument in ("--object-name", each)]
    printed = run_tool(_TOOL, ["--jmx-url", url, *names, "--one-time", "--report-format", "tsv"])
    lines = (line.rsplit("\t", 1) for line in printed.splitlines() if "\t" in line)
    return {name: float(value) for name, value in lines if name != "time" and _is_number(value)}


def _is_number(value: str) -> bool:
    return value.replace(".", "", 1).lstrip("-").isdecimal()
