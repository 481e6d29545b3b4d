"""`offsetstream maintain` for spark-submit and Databricks workflows, in the launcher's own session."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import SETTINGS, OneLineErrors
from offsetstream.cli.maintain import maintain_options, run_maintenance


@click.command(cls=OneLineErrors, context_settings=SETTINGS)
@maintain_options
def maintain_tables(**options: Any) -> None:
    """Thin the history that is older than --keep-history, put small files together, delete those of no use."""
    run_maintenance(options)


if __name__ == "__main__":
    maintain_tables()
