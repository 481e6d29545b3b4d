"""The examples of README, tutorial and how-to pages work unchanged in a folder, against a real broker."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.live_logs import numbered, write
from testkit.processes import offsetstream

ROOT = Path(__file__).parents[2]
# Other how-to pages have their own tests.
HOW_TO = ("ask", "change-offsets", "configure", "log-files", "python", "retention")
PAGES = (ROOT / "README.md", ROOT / "docs/tutorial.md", *(ROOT / f"docs/how-to/{name}.md" for name in HOW_TO))


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language, in the order of the pages."""
    block = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [each for page in PAGES for each in block.findall(page.read_text("utf-8"))]


COMMANDS = list(dict.fromkeys(line for block in blocks("bash") for line in block.splitlines()))
SETTINGS, CLUSTERS = blocks("toml")
PYTHON = blocks("python")


@pytest.fixture(scope="module")
def folder(own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    create_topics(admin_client(own_kafka.bootstrap_server))
    write(own_kafka.bootstrap_server, "orders", *numbered(60))
    commit_plainly(own_kafka.bootstrap_server, {"billing": [TopicPartition("orders", 0, 41, "from the README")]})
    folder = tmp_path_factory.mktemp("readme")
    for name, settings in (("offsetstream.toml", SETTINGS), ("clusters.toml", CLUSTERS)):
        (folder / name).write_text(re.sub("localhost:909[23]", own_kafka.bootstrap_server, settings))
    return folder


@pytest.mark.parametrize(
    "many_clusters",
    [pytest.param(False, id="one cluster"), pytest.param(True, id="many clusters", marks=pytest.mark.long)],
)
def test_every_command_works(own_kafka: EmbeddedKafka, folder: Path, *, many_clusters: bool) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [command for command in COMMANDS if ("clusters.toml" in command) == many_clusters]
    assert len(commands) > 4
    for command in commands:
        localized = command.replace("localhost:9092", own_kafka.bootstrap_server)
        shown = subprocess.run(
            shlex.split(localized.replace("/var/lib/kafka/data", str(own_kafka.folder))),
            cwd=folder,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, (command, shown.stderr)
        says = {
            "run": "Everything is applied",
            "load": "Everything is loaded",
            "maintain": "offset_commits",
            "config": "file ",
        }
        assert says.get(command.split()[1], "billing") in shown.stdout + shown.stderr, command


@pytest.mark.parametrize("example", PYTHON, ids=["notebook", "Arrow", "views", "thresholds", "SQL", "live"])
def test_the_python_examples_work(own_kafka: EmbeddedKafka, folder: Path, example: str) -> None:
    localized = example.replace("localhost:9092", own_kafka.bootstrap_server)
    shown = subprocess.run([sys.executable, "-c", localized], cwd=folder, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    assert "billing" in shown.stdout or "from the README" in shown.stdout


def test_the_help_names_every_command(folder: Path) -> None:
    shown = offsetstream(cwd=folder)
    for command in COMMANDS:
        assert f"\n  {command.split()[1]} " in shown.stdout + shown.stderr
