"""A minimal MCP server over HTTP (legacy, JSON answers) with one echo tool, as fast as it goes. PORT"""

import json
import sys

import uvicorn

TOOL = {
    "name": "echo",
    "description": "Give back the text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(message):
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "upstream", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {
                "content": [{"type": "text", "text": message["params"]["arguments"]["text"]}],
                "isError": False,
            }
        case "ping":
            return {}
    return None


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body")
    status, content = 202, b""
    if scope["method"] != "POST":
        status = 405
    elif "id" in (message := json.loads(body)):
        result = answer(message)
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        reply |= {"result": result} if result is not None else {"error": {"code": -32601, "message": "no"}}
        status, content = 200, json.dumps(reply).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if status == 200:
        headers.append((b"mcp-session-id", b"bench"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False, lifespan="off")
