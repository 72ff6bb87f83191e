"""The database of one installation. SQLAlchemy is loaded when a store is opened, not here."""

from nanobot.store.store import Store, open_store
from nanobot.store.threads import Threads

__all__ = ["Store", "Threads", "open_store"]
