"""One entry of the audit log: what was asked, by whom, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Body = msgspec.Raw | Mapping[str, Any] | str | msgspec.UnsetType
"""A message as it was, a message with secrets masked, or what is told of one that is not shown."""

Headers = Mapping[str, Sequence[str]]


class HookStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one hook made of a message. `type`: request, response or event; `name`: the key it stands under;
    `tool`: what was called; `status`: ok, mutated, rejected, failed or skipped."""

    type: str
    method: str
    name: str
    tool: str = ""
    status: str
    message: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log, named as its readers know the fields. What is unknown or empty is left out.

    `createdAt` is UTC in RFC 3339, `sequence` counts the entries of one run from 1: a gap means that
    entries were dropped. `callType` is the method, `sse/stream`, `session/delete`, or `invalid` for a request
    that was refused before its method was known.
    """

    createdAt: str
    sequence: int
    callType: str
    callIdentifier: str = ""
    metadata: Mapping[str, str] = {}
    accountID: str = ""
    subject: str = ""
    apiKey: str = ""
    clientName: str = ""
    clientVersion: str = ""
    clientIP: str = ""
    sessionID: str = ""
    requestID: str = ""
    traceID: str = ""
    server: str = ""
    userAgent: str = ""
    requestHeaders: Headers = {}
    requestBody: Body = msgspec.UNSET
    mutatedRequestBody: Body = msgspec.UNSET
    responseStatus: int = 0
    responseHeaders: Headers = {}
    responseBody: Body = msgspec.UNSET
    originalResponseBody: Body = msgspec.UNSET
    webhookStatuses: Sequence[HookStatus] = ()
    error: str = ""
    processingTimeMs: int | msgspec.UnsetType = msgspec.UNSET
