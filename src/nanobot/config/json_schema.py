"""Whether a JSON Schema written in a configuration is one."""

from __future__ import annotations

from typing import Any

from nanobot.config.diagnostics import Place
from nanobot.config.places import Origin


def check_schema(schema: dict[str, Any], at: Origin, place: Place) -> None:
    import jsonschema_rs  # only needed where a schema is written

    try:
        jsonschema_rs.meta.validate(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as e:
        where = "".join(f"/{part}" for part in getattr(e, "instance_path", ()))
        place.error("bad-value", at, f"This is not a valid JSON Schema{f' (at {where})' if where else ''}.")
