"""Refusals, and their bodies in the shape of the API that was called."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

#: What Anthropic calls an error of a status.
_ANTHROPIC: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
#: What vLLM calls an error of a status, where it is not the phrase of the status itself.
_OPENAI: Final = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}


class Refusal(Exception):
    """A request that is answered with an error.

    ``status`` is its HTTP status, ``message`` what the client is told and ``param`` the field at fault.
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message[:1000], param


class BadRequest(Refusal):
    """The body is not a request of this API."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, message, param)


def error_body(path: str, status: int, message: str, param: str | None = None) -> dict[str, Any]:
    """Return the error body for a request to *path*: Anthropic's under ``/v1/messages``, else vLLM's."""
    if path.startswith("/v1/messages"):
        kind = _ANTHROPIC.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = _OPENAI.get(status) or _phrase(status)
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def _phrase(status: int) -> str:
    """Return the status' phrase as one word, for example InternalServerError."""
    try:
        phrase = HTTPStatus(status).phrase.title().replace(" ", "")
    except ValueError:
        phrase = "InternalServerError" if status >= 500 else "BadRequest"
    return phrase if phrase.endswith("Error") else phrase + "Error"
