"""nanobot: an MCP host and a personal assistant on one core."""

__version__ = "0.1.0"

DISTRIBUTION = "nanobot-host"
"""The name the package is installed by; every install hint uses it."""
