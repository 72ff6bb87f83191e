"""The official SDK's server with one echo tool, answering JSON. PORT"""

import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("bench")


@server.tool()
def echo(text: str) -> str:
    """Give back the text."""
    return text


app = server.streamable_http_app(json_response=True)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
