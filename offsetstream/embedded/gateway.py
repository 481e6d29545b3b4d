"""A JVM of our own to drive Kafka's Java classes from Python, without compiling Java."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import pyspark
from py4j import protocol
from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway

from offsetstream.embedded.artifacts import classpath
from offsetstream.embedded.java import java_executable

_LAST_SECONDS = 5.0


@contextmanager
def java_gateway(jars: Sequence[Path] = (), *, auto_convert: bool = False) -> Iterator[JavaGateway]:
    """One JVM with py4j's server and `jars`, ended at once with the block (or with this process)."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port, token, process = launch_gateway(
        jarpath=str(jar),
        classpath=classpath(jars),
        java_path=str(java_executable()),
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        create_new_process_group=True,  # Ctrl-C is for us, who end it
        enable_auth=True,
        return_proc=True,
    )
    gateway = _Gateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=auto_convert))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        _ended(process)


def _ended(process: Popen[bytes]) -> None:
    """Wait until it is gone: one that does not go by itself (a client in it still waits for its servers) is killed."""
    try:
        process.wait(timeout=_LAST_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()


class _Client(GatewayClient):  # type: ignore[misc]  # py4j is not typed
    """Raises a Java exception where its answer arrives, as Py4JJavaError.

    py4j would do so later, by a function that PySpark replaces for the whole process whenever it makes a session; its
    replacement asks Spark's JVM about the exceptions of any.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        answer = super().send_command(command, retry, binary)
        if not binary and protocol.is_error(answer)[0]:
            protocol.get_return_value(answer, self, *command.split("\n")[1:3])
        return answer


class _Gateway(JavaGateway):  # type: ignore[misc]  # likewise
    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)
