"""`offsetstream load`: make tables from log segments, without a broker."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import click

from offsetstream.cli.options import settings_options
from offsetstream.cli.process import stop_on_signal
from offsetstream.cli.run import errors_logged
from offsetstream.cli.segments import topics_option
from offsetstream.stream.settings import FilesSettings


@click.command(
    epilog="""\b
Examples:
  offsetstream load /var/lib/kafka/data --tables case-4711
  offsetstream load bundle/broker-1 bundle/broker-2 --tables case-4711 --topics topics.json
  offsetstream groups status --tables case-4711

A place is a broker's log directory, a folder that has several, a folder of segments, or a segment. Of several replicas
of a partition, the one with the last leader epoch is read, up to the high watermark; a warning says which of these
files are missing. The tables end at the newest record: all commands take its time as now. 'replay' needs no tables."""
)
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@topics_option
@settings_options(FilesSettings)
def load(places: tuple[str, ...], topic_names: Mapping[str, str], **options: Any) -> None:
    """Load log segments of __consumer_offsets into tables of their own, with their history.

    It needs no broker. An interrupted load continues with the same command. Exit code 1: a batch is damaged, or the
    tables are of other files.
    """
    from offsetstream.progress import Progress

    progress = Progress(as_json=options["log_format"] == "json")
    with errors_logged(progress):
        settings, stop = FilesSettings(**options), threading.Event()
        with stop_on_signal(stop.set):
            from offsetstream.spark.local import LocalSpark

            # Java starts while the files are looked at.
            session = LocalSpark(settings.master, settings.conf, log_format=settings.log_format).running()
            from offsetstream.stream.files import FilesLoad

            FilesLoad(settings, places, topic_names, session, progress, stop).run()
