"""What to do where Hadoop does not reach a store, by what it says; each is seen with a real one in tests/stores/."""

from __future__ import annotations

import pytest

from offsetstream.embedded.hadoop import unreachable_message

NO_CLASS = "java.lang.RuntimeException: java.lang.ClassNotFoundException: Class ... not found"


@pytest.mark.parametrize(
    ("uri", "said", "advice"),
    [
        (
            "s3a://lake/t",
            NO_CLASS,
            "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1 (docs/how-to/stores.md)",
        ),
        (
            "abfss://c@a.dfs.core.windows.net/t",
            NO_CLASS,
            "org.apache.hadoop:hadoop-azure:3.4.1 (docs/how-to/stores.md)",
        ),
        ("gs://lake/t", 'No FileSystem for scheme "gs"', "gcs-connector:hadoop3-2.2.26 (docs/how-to/stores.md)"),
        ("s3://lake/t", 'No FileSystem for scheme "s3"', "Use s3a://..."),
        ("cos://lake/t", 'No FileSystem for scheme "cos"', "with --conf spark.jars.packages=..., or mount the store"),
        (
            "s3a://lake/t",
            "NoAuthWithAWSException: none",
            "Set credentials that may access it with --conf spark.hadoop.fs.s3a...",
        ),
        ("hdfs://gone/t", "java.net.UnknownHostException: gone", "with --conf spark.hadoop.fs.hdfs..."),
    ],
)
def test_the_error_says_what_to_configure(uri: str, said: str, advice: str) -> None:
    message = unreachable_message(uri, said, "3.4.1")
    assert message.startswith(f"Spark cannot reach {uri} ({said}). ")
    assert advice in message
