"""A small MCP server in plain Python: notes as tools and resources, over standard input and output."""

import json
import sys

NOTES = {
    "welcome": "Welcome to nanobot. Agents are files, tools come from MCP servers.",
    "shopping": "Apples, bread, tea.",
}


def text_argument(description):
    return {"type": "string", "description": description}


TOOLS = [
    {
        "name": "list_notes",
        "description": "The names of all notes.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "read_note",
        "description": "The text of one note.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": text_argument("Name of the note.")},
            "required": ["name"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "write_note",
        "description": "Write a note, or replace it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": text_argument("Name of the note."),
                "text": text_argument("Its text."),
            },
            "required": ["name", "text"],
        },
    },
]


class Refused(Exception):
    """A JSON-RPC error: code and message."""


def call_tool(name, arguments):
    if name == "list_notes":
        return ", ".join(sorted(NOTES))
    if name == "read_note":
        return NOTES[arguments["name"]]
    if name == "write_note":
        NOTES[arguments["name"]] = arguments["text"]
        return f"Saved {arguments['name']}."
    raise Refused(-32602, f"unknown tool {name}")


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "notes", "version": "1.0"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        try:
            text, failed = call_tool(params["name"], params.get("arguments") or {}), False
        except KeyError as missing:
            text, failed = f"There is no {missing}; notes: {', '.join(sorted(NOTES))}.", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}
    if method == "resources/list":
        notes = [{"uri": f"note:///{n}", "name": n, "mimeType": "text/plain"} for n in sorted(NOTES)]
        return {"resources": notes}
    if method == "resources/read":
        name = params["uri"].removeprefix("note:///")
        if name not in NOTES:
            raise Refused(-32002, f"there is no note {name}")
        return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": NOTES[name]}]}
    raise Refused(-32601, f"unknown method {method}")


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except Refused as refusal:
        reply["error"] = {"code": refusal.args[0], "message": refusal.args[1]}
    print(json.dumps(reply), flush=True)
