"""What is said when an object store does not do what it was asked: in the answers' own words, with the way out."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from muster_cli.backup.object_store import _told
from muster_cli.backup.store import MissingError, StoreError

STATUS = "Error performing GET http://s/b/x in 1ms - Server returned non-2xx status code"
BODY = '{status}: <?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{text}</Message></Error>'


def answer(status: str, code: str, text: str) -> str:
    return f"Generic S3 error: {STATUS}: " + BODY.format(status=status, code=code, text=text)


def told(error: Exception) -> StoreError:
    with pytest.raises(StoreError) as caught, _told("s3://b/x", "read"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (
            FileNotFoundError(answer("404 Not Found", "NoSuchBucket", "The specified bucket does not exist.")),
            ("NoSuchBucket (The specified bucket does not exist)", "create the bucket"),
        ),
        (
            PermissionDeniedError(answer("403 Forbidden", "SignatureDoesNotMatch", "It doesn&#39;t match.")),
            ("SignatureDoesNotMatch (It doesn't match)", "AWS_SECRET_ACCESS_KEY", "credentialsSecret"),
        ),
        (GenericError(answer("400 Bad Request", "Odd", "")), ("the object store answers Odd",)),
        (GenericError("error sending request\nDebug source: {}"), ("cannot read s3://b/x: error sending request",)),
    ],
)
def test_answer_of_the_store_is_told_with_the_way_out(error: Exception, parts: tuple[str, ...]) -> None:
    found = told(error)
    assert not isinstance(found, MissingError)  # nobody may take a bucket that is away for one that is empty
    assert str(found).startswith("cannot read s3://b/x: ")
    assert [part for part in parts if part not in str(found)] == []
    assert [part for part in ("<?xml", "Debug source", "\n") if part in str(found)] == []


@pytest.mark.parametrize("text", ["Object at location x not found", answer("404 Not Found", "NoSuchKey", "No key.")])
def test_only_an_object_that_is_not_there_is_missing(text: str) -> None:
    found = told(FileNotFoundError(text))
    assert (type(found), str(found)) == (MissingError, "cannot read s3://b/x: there is none")
