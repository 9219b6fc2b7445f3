"""What may go wrong: a mistake of the operator (ForgeError) and an answer other than 2xx (ApiError).

The wording of an ApiError is GitHub's own, because clients decide by it.
"""

from __future__ import annotations

from typing import Any

DOCS = "https://docs.github.com/rest"


class ForgeError(Exception):
    """One clear line for the person at the command line: what, where, what to do."""


class ApiError(Exception):
    """A REST answer of status 4xx/5xx with GitHub's message and, for 422, its list of errors."""

    def __init__(
        self,
        status: int,
        message: str,
        errors: list[dict[str, Any]] | None = None,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.headers = headers or {}
        self.body: dict[str, Any] = {"message": message, **(extra or {})}
        if errors is not None:
            self.body["errors"] = errors
        self.body["documentation_url"] = DOCS
        self.body["status"] = str(status)


def not_found() -> ApiError:
    return ApiError(404, "Not Found")


def invalid(resource: str, field: str | None, code: str, message: str | None = None) -> ApiError:
    """A 422 "Validation Failed" with one error, shaped as GitHub shapes it."""
    error: dict[str, Any] = {"resource": resource, "code": code}
    if field is not None:
        error["field"] = field
    if message is not None:
        error["message"] = message
    return ApiError(422, "Validation Failed", [error])


def unprocessable(message: str) -> ApiError:
    """A 422 whose message itself is the reason (the git data endpoints answer so)."""
    return ApiError(422, message)
