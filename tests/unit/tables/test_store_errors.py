"""delta-rs's messages of several lines become one line."""

from __future__ import annotations

import pytest

from offsetstream.errors import TablesError, one_line
from offsetstream.tables.path_store.errors import translated_errors

COLOURED = "Kernel error -> Generic S3 error\n     \x1b[31m↳\x1b[0m Error performing PUT\n   \x1b[31m↳\x1b[0m refused\n"
ANSWERED = (
    "Kernel error\n  \x1b[31m↳\x1b[0m <?xml version='1.0'?>\n<Error><Code>NoSuchBucket</Code>"
    "<Message>It does not exist</Message><Resource>/lake</Resource></Error>"
)


def test_the_reason_is_one_short_line() -> None:
    assert one_line(OSError(COLOURED)) == "Kernel error -> Generic S3 error: Error performing PUT: refused"
    assert one_line(OSError(ANSWERED)) == "NoSuchBucket: It does not exist"
    assert len(one_line(OSError("many words " * 100))) <= 400


def test_errors_of_an_object_store_are_explained_but_not_those_of_a_disk() -> None:
    with (
        pytest.raises(TablesError, match=r"cannot read the table s3a://lake/t: .*: refused: set the store's address"),
        translated_errors("s3a://lake/t"),
    ):
        raise OSError(COLOURED)
    with pytest.raises(OSError, match="full"), translated_errors("/tables/t"):
        raise OSError("full")
