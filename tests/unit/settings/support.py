"""What tests of settings share: an environment without any, and what the command says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from offsetstream.cli.main import main
from offsetstream.maintenance.settings import MaintenanceSettings
from offsetstream.settings.schema import settings_of
from offsetstream.stream.settings import JobSettings

SERVER = "127.0.0.1:1"
DECLARED = [(JobSettings, "run"), (MaintenanceSettings, "maintain")]
EACH = [(command, setting) for declared, command in DECLARED for setting in settings_of(declared)]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def show(*arguments: str) -> dict[str, tuple[Any, str]]:
    """Name of each setting: its value, and where it comes from."""
    shown = invoke("config", "show", *arguments, "--output", "json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    return {row["name"]: (row["value"], row["from"]) for row in json.loads(shown.stdout)}


def write(folder: Path, text: str) -> str:
    file = folder / "settings.toml"
    file.write_text(text)
    return str(file)
