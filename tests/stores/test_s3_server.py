"""The tests' S3 server does what the tables rely on: an existing key is not overwritten by a conditional write."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from offsetstream.tables.location import write_file
from testkit.s3_server import S3Server
from testkit.waiting import await_
from tests.stores.commits_at_once import commit_at_once

pytestmark = pytest.mark.long


def test_concurrent_commits_get_separate_versions(s3: S3Server) -> None:
    uri = s3.uri("at-once")
    expected = commit_at_once(uri)
    assert DeltaTable(uri).version() == expected

    def statuses() -> set[int]:
        return {each.status for each in s3.requests if each.api == "PutObject" and "at-once/_delta_log/0" in each.key}

    await_(lambda: statuses() == {200, 412}, statuses)  # the server reports its requests a little later


def test_every_request_is_counted(s3: S3Server) -> None:
    before = len(s3.requests)
    s3.files().open_output_stream(f"{s3.bucket}/counted/a.txt").close()
    await_(lambda: any(each.key == "counted/a.txt" for each in s3.requests[before:]), lambda: s3.requests[before:])


def test_a_file_is_overwritten_completely(s3: S3Server) -> None:
    """As `offsetstream report --watch` overwrites its page."""
    for data in (b"a" * 3_000_000, b"b" * 1_000_001):
        write_file(s3.uri("page/report.html"), data)
        with s3.files().open_input_stream(f"{s3.bucket}/page/report.html") as stream:
            assert stream.read() == data
