"""The EMR files in docs/how-to/aws.md are accepted by AWS's service models, spark-submit and the job."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from offsetstream.cli.submitted import materialize_offsets
from offsetstream.cluster.login import java_plugins
from offsetstream.spark.session import CONNECTORS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "aws.md").read_text("utf-8")
STEPS, RUN, POLICY = (json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
(STEP,) = STEPS
SUBMITTED = RUN["jobDriver"]["sparkSubmit"]
PLATFORMS = (ROOT / "docs" / "reference" / "platforms.md").read_text("utf-8")
# Each EMR release of the recipes, with its Spark.
RELEASES = dict(re.findall(r"^\| .*?`(emr-spark-[\d.]+)`.*? \| ([\d.]+)-amzn-\d+ \|", PLATFORMS, re.MULTILINE))


def of_spark_submit() -> tuple[dict[str, str], str, list[str]]:
    """Return the step's spark-submit options, its script, and the job's own arguments."""
    command, *words = STEP["Args"]
    assert command == "spark-submit"
    at = next(n for n, word in enumerate(words) if word.endswith(".py"))
    return options(words[:at]), words[at], words[at + 1 :]


def options(words: list[str]) -> dict[str, str]:
    """Return the value of each option; that of --conf under its own name."""
    given = zip(words[::2], words[1::2], strict=True)
    return dict(value.partition("=")[::2] if name == "--conf" else (name, value) for name, value in given)


def complaints(service: str, operation: str, given: dict[str, Any]) -> str:
    """Return the objections of AWS's own model of a call to the parameters."""
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(operation).input_shape
    return str(ParamValidator().validate(given, shape).generate_report())


def test_emr_accepts_the_step() -> None:
    # The file is input of `aws emr add-steps`, which turns it into this.
    assert STEP.keys() == {"Type", "Name", "ActionOnFailure", "Jar", "Args"}
    assert (STEP["Type"], STEP["Jar"]) == ("CUSTOM_JAR", "command-runner.jar")
    step = {
        "Name": STEP["Name"],
        "ActionOnFailure": STEP["ActionOnFailure"],
        "HadoopJarStep": {"Jar": STEP["Jar"], "Args": STEP["Args"]},
    }
    assert complaints("emr", "AddJobFlowSteps", {"JobFlowId": "j-1", "Steps": [step]}) == ""


def test_emr_serverless_accepts_the_run() -> None:
    # The command line adds its own token.
    assert complaints("emr-serverless", "StartJobRun", {**RUN, "clientToken": "1"}) == ""
    assert complaints("emr-serverless", "StartJobRun", {**RUN, "clientToken": "1", "modus": "STREAMING"}) != ""
    assert RUN["mode"] == "STREAMING"


@pytest.mark.parametrize("arguments", [of_spark_submit()[2], SUBMITTED["entryPointArguments"]])
def test_the_job_knows_its_arguments(arguments: list[str]) -> None:
    given = materialize_offsets.make_context("materialize_offsets", list(arguments)).params
    assert given["checkpoint"] == given["tables"].replace("offsets", "checkpoints")
    assert given["tables"].startswith("s3a://")
    assert given["command_config"].endswith("client.properties")


def test_the_script_is_the_spark_submit_launcher() -> None:
    for script in (of_spark_submit()[1], SUBMITTED["entryPoint"]):
        assert (ROOT / "streaming_jobs" / script.rpartition("/")[2]).exists()


def test_spark_gets_the_connector_of_its_own_version_and_no_second_delta() -> None:
    newest = max(RELEASES)
    assert RELEASES[newest].rpartition(".")[0] in CONNECTORS
    (clients,) = (each for each in CONNECTORS["4.1"] if each.startswith("org.apache.kafka:"))
    (login,) = java_plugins({"sasl.mechanism": "AWS_MSK_IAM"})
    source = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{RELEASES[newest]}"
    serverless = options(shlex.split(SUBMITTED["sparkSubmitParameters"]))
    for given in (of_spark_submit()[0], serverless):
        assert given["--packages"] == f"{source},{clients},{login}"


def test_delta_comes_from_the_emr_release() -> None:
    (defaults,) = RUN["configurationOverrides"]["applicationConfiguration"]
    assert defaults["classification"] == "spark-defaults"
    for given in (of_spark_submit()[0], defaults["properties"]):
        folder = "/usr/share/aws/delta/lib"
        assert given["spark.jars"] == f"{folder}/delta-spark.jar,{folder}/delta-storage.jar"


def test_the_policy_grants_the_actions_that_the_page_of_rights_lists() -> None:
    rights = (ROOT / "docs" / "reference" / "rights.md").read_text("utf-8")
    table = rights.partition("| action | on | for |\n|---|---|---|\n")[2].partition("\n\n")[0]
    listed = {action for row in table.splitlines() for action in re.findall(r"`(\w+)`", row.split("|")[1])}
    granted = {action.removeprefix("kafka-cluster:") for each in POLICY["Statement"] for action in each["Action"]}
    assert granted == listed
