"""A JVM of our own to drive Kafka's Java classes from Python, without compiling Java."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

import pyspark
from py4j import java_gateway as py4j_gateway
from py4j import protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

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
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=auto_convert))
    try:
        with _errors_of_its_own(gateway):
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


@contextmanager
def _errors_of_its_own(gateway: JavaGateway) -> Iterator[None]:
    """Have this JVM's exceptions come as Py4JJavaError: PySpark, once it runs, asks Spark's JVM about those of any."""
    others = py4j_gateway.get_return_value

    def return_value(answer: str, client: Any, *about: Any) -> Any:
        take = protocol.get_return_value if client is gateway._gateway_client else others
        return take(answer, client, *about)

    py4j_gateway.get_return_value = return_value
    try:
        yield
    finally:
        if py4j_gateway.get_return_value is return_value:
            py4j_gateway.get_return_value = others
