"""Ports on the loopback address."""

import random
import socket

from offsetstream.errors import EnvironmentNotReadyError

LOOPBACK = "127.0.0.1"
# Below the ports that systems give to outgoing connections: a stopped broker finds its port free again.
_CANDIDATES = range(20_000, 32_000)


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nothing listens on; another process may still take one later."""
    found: list[int] = []
    for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
        if len(found) == count:
            return found
        try:
            check_port_is_free(port)
        except EnvironmentNotReadyError:
            continue
        found.append(port)
    raise EnvironmentNotReadyError(f"No {count} free ports on {LOOPBACK}: end what listens there")


def check_port_is_free(port: int) -> None:
    """Raise EnvironmentNotReadyError, one line, where something listens on the port that the user asked for."""
    with socket.socket() as probe:
        # As Kafka binds it: a connection of before that is only timing out does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"Port {port} on {LOOPBACK} cannot be had ({error.strerror}): "
                "stop what listens there, or choose another port, or none to get a free one"
            ) from error


def accepts_connections(port: int) -> bool:
    """Return whether something listens on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False
