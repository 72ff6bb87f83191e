"""What a provider's failure means: one function per way of failing, one class of error out.

Structured fields decide first; the text of an error is looked at only for what providers put nowhere else.
The text of a successful answer is never inspected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from nanobot.http import HttpError
from nanobot.llm.model import ErrorKind, ProviderError

MAX_BODY: Final = 64 * 1024
"""Bytes of an error body that are read."""
_SHOWN_TEXT: Final = 300
_TRANSIENT: Final = frozenset[ErrorKind]({"timeout", "connection", "rate_limit", "server"})

_BILLING: Final = (
    "insufficient_quota",
    "quota_exceeded",
    "billing_hard_limit_reached",
    "insufficient_balance",
    "credit_balance_too_low",
    "billing_not_active",
    "payment_required",
    "credit balance is too low",
    "exceeded your current quota",
)
_CONTEXT: Final = (
    "context_length_exceeded",
    "request_too_large",
    "prompt is too long",
    "maximum context length",
    "model_context_window_exceeded",
)
_CONTENT: Final = ("content_policy", "content_filter", "responsible_ai", "safety_violation")
_KEY_WORDS: Final = (
    "api key not valid",
    "invalid api key",
    "incorrect api key",
    "api key expired",
    "invalid_api_key",
)
_BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: "authentication",
    402: "billing",
    403: "authentication",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "context_length",
    429: "rate_limit",
    504: "timeout",
}
_BY_WORD: Final[tuple[tuple[str, ErrorKind], ...]] = (
    ("rate_limit", "rate_limit"),
    ("too_many_requests", "rate_limit"),
    ("overloaded", "server"),
    ("server_error", "server"),
    ("api_error", "server"),
    ("service_unavailable", "server"),
    ("insufficient_system_resource", "server"),
    ("authentication", "authentication"),
    ("permission", "authentication"),
    ("not_found", "not_found"),
    ("timeout", "timeout"),
    ("invalid", "invalid_request"),
)
_SECRET = re.compile(r"(?i)\b(?:sk|pk|rk|key|bearer|token)[-_ ][\w\-*.]{8,}")
_WAIT = re.compile(
    r"(?i)(?:retry after|try again in|wait)\s+(\d+(?:\.\d+)?)\s*(ms|milliseconds?|seconds?|s|minutes?|m)?\b"
)


def refused(
    provider: str, status: int, headers: Mapping[str, str], body: bytes, *, secret: str = ""
) -> ProviderError:
    """The error of an answer with a status other than 2xx."""
    said = _said(body)
    error = _classified(provider, status, said, secret=secret)
    error.retry_after = retry_after(headers, said.text)
    match headers.get("x-should-retry", ""):
        case "true":
            error.retryable = True
        case "false":
            error.retryable = False
        case _:
            pass
    return error


def reported(provider: str, said: Any, *, secret: str = "") -> ProviderError:
    """The error a provider reported inside an answer it had begun (status 200). `said` is its JSON."""
    found = _fields(said)
    error = _classified(provider, found.status, found, secret=secret)
    error.retry_after = retry_after({}, found.text)
    return error


def broken(provider: str, cause: HttpError) -> ProviderError:
    """The error of an exchange that did not come to its end."""
    kind: ErrorKind
    match cause.kind:
        case "timeout":
            kind = "timeout"
        case "tls":
            kind = "tls"
        case "bad_url":
            kind = "invalid_request"
        case _:
            kind = "connection"
    return ProviderError(kind, f"Provider {provider!r}: {cause}", retryable=kind in _TRANSIENT)


def cut_off(provider: str) -> ProviderError:
    """The error of a stream that ended before the answer did."""
    return ProviderError(
        "connection", f"Provider {provider!r} ended its answer in the middle.", retryable=True
    )


def unlisted(provider: str) -> ProviderError:
    """The error of a provider that does not tell its models in the usual way."""
    return ProviderError("server", f"Provider {provider!r} did not answer with a list of models.")


def silent(provider: str, idle_s: float) -> ProviderError:
    """The error of a stream that sends signs of life but no data."""
    return ProviderError(
        "timeout",
        f"Provider {provider!r} sent no data for {idle_s:g} s (NANOBOT_STREAM_IDLE_TIMEOUT_S).",
        retryable=True,
    )


def retry_after(headers: Mapping[str, str], text: str = "") -> float | None:
    """Seconds a provider asks to wait, from headers or else from what it wrote; None if it does not say.

    A date is taken relative to the answer's own `date` header, so that a wrong clock here does no harm.
    """
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    if after := headers.get("retry-after"):
        if (seconds := _number(after)) is not None:
            return seconds
        from email.utils import parsedate_to_datetime  # slow to import, and rarely needed

        try:
            until = parsedate_to_datetime(after)
            return max(0.0, (until - parsedate_to_datetime(headers["date"])).total_seconds())
        except (ValueError, KeyError, TypeError):
            return None
    if found := _WAIT.search(text):
        number, unit = float(found[1]), (found[2] or "s").lower()
        if unit.startswith(("ms", "milli")):
            return number / 1000
        return number * 60 if unit.startswith("m") else number
    return None


def redacted(text: str, secret: str = "") -> str:
    """`text` on one line, cut, without `secret` and anything that looks like a key."""
    if secret:
        text = text.replace(secret, "***")
    text = " ".join(_SECRET.sub("***", text).split())
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 1] + "…"


class _Said(msgspec.Struct):
    """The parts of an error object, wherever a provider put them."""

    text: str = ""
    code: str = ""
    type: str = ""
    param: str = ""
    status: int | None = None


def _said(body: bytes) -> _Said:
    try:
        return _fields(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Said(text=body.decode("utf-8", "replace"))


def _fields(said: Any) -> _Said:
    if isinstance(said, list) and said:  # Gemini wraps its error object in a list
        said = cast("list[Any]", said)[0]
    if not isinstance(said, dict):
        return _Said(text=str(cast("object", said)))
    outer = cast("dict[str, Any]", said)
    inner = outer.get("error", outer)
    if not isinstance(inner, dict):
        return _Said(text=str(outer.get("message") or inner))
    error = cast("dict[str, Any]", inner)
    code = error.get("code")
    return _Said(
        text=str(error.get("message") or ""),
        code=str(code or error.get("status") or ""),
        type=str(error.get("type") or ""),
        param=str(error.get("param") or ""),
        status=code if isinstance(code, int) and 400 <= code < 600 else None,
    )


def _classified(provider: str, status: int | None, said: _Said, *, secret: str) -> ProviderError:
    kind = _kind(status, said)
    detail = redacted(f"{said.text} ({said.param})" if said.param else said.text, secret)
    answered = f"answered {status}" if status else "reported an error"
    match kind:
        case "authentication":
            message = f"Provider {provider!r} refused the API key; check the key that is configured for it."
        case "billing":
            message = f"The account at provider {provider!r} is out of quota or credit."
        case "rate_limit":
            message = f"Provider {provider!r} limits the rate of requests; try again later."
        case "context_length":
            message = f"The conversation is too long for the model at provider {provider!r}."
        case _:
            message = f"Provider {provider!r} {answered}" + (f": {detail}" if detail else ".")
    return ProviderError(
        kind,
        message,
        status=status,
        provider_code=said.code or said.type,
        retryable=kind in _TRANSIENT,
        detail=detail,
    )


def _kind(status: int | None, said: _Said) -> ErrorKind:
    words = f"{said.code} {said.type}".lower()
    text = said.text.lower()
    if status == 402 or any(w in words or w in text for w in _BILLING):
        return "billing"
    if status is None or status < 500:
        if any(w in words or w in text for w in _CONTEXT):
            return "context_length"
        if any(w in words for w in _CONTENT):
            return "content"
        if any(w in words or w in text for w in _KEY_WORDS):
            return "authentication"
    if status is not None:
        return _BY_STATUS.get(status) or ("server" if status >= 500 else "invalid_request")
    for word, kind in _BY_WORD:
        if word in words:
            return kind
    if not words.strip():
        for word, kind in _BY_WORD:
            if word.replace("_", " ") in text:
                return kind
    return "server"


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value else None
    except ValueError:
        return None
    return number if number is not None and 0 <= number < 1e9 else None
