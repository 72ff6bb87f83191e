"""How a request ended, as a message that hooks are shown, and back."""

from __future__ import annotations

from nanobot.errors import NanobotError
from nanobot.hub.hooks.hook import JsonObject
from nanobot.wire.rpc import TIMEOUT, Payload, RpcError


def error_answer(request: JsonObject, failure: NanobotError) -> JsonObject:
    """The answer a request failed with. Where none came there is one all the same: hooks see every end."""
    if isinstance(failure, RpcError):
        error: JsonObject = {"code": failure.rpc_code, "message": failure.message}
        if failure.data is not None:
            error["data"] = failure.data.value
    else:
        error = {"code": TIMEOUT, "message": str(failure)}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def result_or_raise(message: JsonObject) -> JsonObject:
    """The result of an answer; raises the error that it is instead."""
    error = message.get("error")
    if error is None:
        return message["result"]
    data = Payload.of(error["data"]) if "data" in error else None
    raise RpcError(error["code"], error["message"], data)
