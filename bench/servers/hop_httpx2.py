"""A bare hop: every POST is sent on with httpx2 and its answer returned. PORT UPSTREAM"""

import sys

import httpx2
import uvicorn

client = httpx2.AsyncClient(limits=httpx2.Limits(max_connections=100, max_keepalive_connections=100))
KEPT = (b"content-type", b"accept", b"mcp-session-id", b"mcp-protocol-version")


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message.get("more_body")
    answer = await client.post(
        sys.argv[2], content=body, headers=[h for h in scope["headers"] if h[0] in KEPT]
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer.content)).encode())]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
