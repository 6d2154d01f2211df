"""Replies as JSON, and the errors that the server answers with."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from thresher.errors import DataError

JSON = "application/json"
_encode = msgspec.json.Encoder(enc_hook=str).encode


class RequestError(Exception):
    """A request that cannot be answered: its status, and the message for the client."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None, **details: Any) -> None:
        super().__init__(message)
        self.status, self.headers, self.details = status, headers, details

    @classmethod
    def of_data(cls, error: DataError) -> "RequestError":
        """The reply to rows that do not fit the schema: 422 with column and row, as far as they are known."""
        return cls(422, str(error), column=error.column, row=error.row)


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, media_type=JSON)


def error_response(error: RequestError) -> Response:
    details = {name: value for name, value in error.details.items() if value is not None}
    return json_response({"error": str(error), **details}, error.status, error.headers)
