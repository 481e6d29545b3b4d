"""Ports on the loopback address."""

import random
import socket

from offsetstream.errors import EnvironmentNotReadyError

LOOPBACK = "127.0.0.1"
# Below the ports for outgoing connections, so that the port of a stopped broker stays free.
_CANDIDATES = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return `count` different free ports. Another process may still take one of them later."""
    found: list[int] = []
    for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
        if len(found) == count:
            return found
        try:
            check_port_is_free(port)
        except EnvironmentNotReadyError:
            continue
        found.append(port)
    raise EnvironmentNotReadyError(
        f"There are not {count} free ports on {LOOPBACK}. Stop some programs that listen there"
    )


def check_port_is_free(port: int) -> None:
    """Raise EnvironmentNotReadyError if the port is in use."""
    with socket.socket() as probe:
        # Like Kafka: an earlier connection in TIME_WAIT does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"Cannot use port {port} on {LOOPBACK} ({error.strerror}). "
                "Stop the program that listens there, or choose another port, or none to get a free one"
            ) from error


def accepts_connections(port: int) -> bool:
    """Return whether something listens on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False
