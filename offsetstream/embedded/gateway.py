"""Start a JVM to call Kafka's Java classes from Python."""

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

_EXIT_SECONDS = 5.0


@contextmanager
def java_gateway(jars: Sequence[Path] = (), *, auto_convert: bool = False) -> Iterator[JavaGateway]:
    """Yield a JVM with py4j's server and `jars`. It ends with the context, or with this process."""
    jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    port, token, process = launch_gateway(
        jarpath=str(jar),
        classpath=classpath(jars),
        java_path=str(java_executable()),
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        create_new_process_group=True,  # Ctrl-C reaches only this process, which then ends the JVM
        enable_auth=True,
        return_proc=True,
    )
    gateway = _Gateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=auto_convert))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        _end(process)


def _end(process: Popen[bytes]) -> None:
    """Wait until the JVM has ended. Kill it after 5 seconds, since a client in it may still wait for its servers."""
    try:
        process.wait(timeout=_EXIT_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()


class _Client(GatewayClient):  # type: ignore[misc]  # py4j is not typed
    """Raises a Java exception as Py4JJavaError as soon as its answer arrives.

    py4j itself does this later, in a function that PySpark replaces for the complete process when it creates a session.
    PySpark's function sends the exceptions of every JVM to Spark's JVM.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        answer = super().send_command(command, retry, binary)
        if not binary and protocol.is_error(answer)[0]:
            protocol.get_return_value(answer, self, *command.split("\n")[1:3])
        return answer


class _Gateway(JavaGateway):  # type: ignore[misc]  # py4j is not typed
    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)
