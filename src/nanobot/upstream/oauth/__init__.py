"""Being an OAuth client of MCP servers that want a login."""
