"""A bare hop: every POST is sent on with aiohttp and its answer returned. PORT UPSTREAM"""

import sys

import aiohttp
import uvicorn

KEPT = (b"content-type", b"accept", b"mcp-session-id", b"mcp-protocol-version")
session = None


async def app(scope, receive, send):
    global session
    if scope["type"] != "http":
        return
    session = session or aiohttp.ClientSession()
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body")
    kept = {k.decode(): v.decode() for k, v in scope["headers"] if k in KEPT}
    async with session.post(sys.argv[2], data=body, headers=kept) as answer:
        content = await answer.read()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
