"""Azure's object store on the loopback address (azurite, from npm), as delta-rs reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.fs as pafs

from offsetstream.embedded.ports import LOOPBACK, accepts_connections, free_ports
from testkit.processes import ServerProcess
from testkit.programs import npm_program

AZURITE = ("azurite", "3.37.0", "dist/src/blob/main.js")
CONTAINER = "lake"
# Azurite's documented account.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class AzureStore:
    """A running store: the URI of its container, and the environment that delta-rs reads."""

    uri: str
    environment: dict[str, str]
    connection: str  # the same for Azure's own clients
    files: pafs.FileSystem  # its objects, seen by a client other than delta-rs


@contextmanager
def azure_store() -> Iterator[AzureStore]:
    """Run the store while the context lasts."""
    with ServerProcess() as server:
        (port,) = free_ports(1)
        places = ["--blobHost", LOOPBACK, "--blobPort", str(port), "--location", str(server.folder / "data")]
        command = [*npm_program(*AZURITE), *places, "--skipApiVersionCheck", "--disableTelemetry"]
        server.start("azurite", command, lambda: accepts_connections(port))
        files = _container(port)
        files.create_dir(CONTAINER)
        address = f"http://{LOOPBACK}:{port}"
        settings = {
            "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": address,
        }
        account = f"AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={address}/{_ACCOUNT};"
        yield AzureStore(f"az://{CONTAINER}", settings, f"DefaultEndpointsProtocol=http;{account}", files)


def _container(port: int) -> pafs.FileSystem:
    at = f"{LOOPBACK}:{port}"
    return pafs.AzureFileSystem(
        account_name=_ACCOUNT,
        account_key=_KEY,
        blob_storage_authority=at,
        dfs_storage_authority=at,
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    )
