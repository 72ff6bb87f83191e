"""The seam between the hub and whatever has tools, under the hub's own name. See `nanobot.wire.source`."""

from nanobot.wire.source import Entry, Kind, Source

__all__ = ["Entry", "Kind", "Source"]
