"""The built-in server `nanobot.system`: files, search, commands and the to-do list of a conversation."""

from nanobot.builtin.system.server import system_server

__all__ = ["system_server"]
