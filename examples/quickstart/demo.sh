#!/bin/sh
# One conversation with the offline demo model, then the server. Run by `make demo`.
set -eu
nanobot="${PYTHON:-python3} -m nanobot"
here=$(cd "$(dirname "$0")" && pwd)

ask() {
    printf '\nyou:    %s\n' "$1"
    printf 'guide:  '
    $nanobot chat -c "$here" --default-model demo --continue -m "$1"
}

echo "A conversation with the agent in examples/quickstart, answered offline by the demo model:"
ask 'hello'
ask 'call read_note {"name": "welcome"}'
ask 'call write_note {"name": "demo", "text": "it works"} then call list_notes {}'

if [ "${1:-}" = once ]; then
    exit 0
fi
echo
echo "Now serving: open http://localhost:${PORT:-8080} or point an MCP client at /mcp. Ctrl-C stops."
exec $nanobot run "$here" --default-model demo --listen-address "localhost:${PORT:-8080}"
