"""Learning from a refused request: which field to leave out the next time.

New models refuse what older ones accepted (a temperature, the name of the output limit). Their error says
so; the request is repeated without the field and the model is remembered.
"""

from __future__ import annotations

import re
from typing import Final

from nanobot.llm.content import has_media
from nanobot.llm.endpoint import Adaptations
from nanobot.llm.model import ModelRequest, ProviderError

_FIELD: Final = re.compile(
    r"\b(temperature|top_p|stream_options|max_completion_tokens|max_tokens|reasoning)(?:\b|_effort)"
)
_VISION: Final = re.compile(r"(?i)\b(image|images|image_url|vision|multimodal)\b")
_NUMBER: Final = re.compile(r"\d[\d,_]{2,}")


def learn(learned: Adaptations, request: ModelRequest, error: ProviderError) -> str | None:
    """What `error` teaches about the model of `request`, now also in `learned`; None if nothing new."""
    if error.kind != "invalid_request" or error.status not in (400, 422):
        return None
    said = error.detail
    if limit := _stated_limit(learned, request, said):
        learned.max_tokens = limit
        return "max_tokens"
    # An error names the field it refuses first and what to use instead after it.
    for name in _FIELD.findall(said):
        if name not in learned.refused and _was_sent(name, request):
            learned.refused.add(name)
            return name
    if _VISION.search(said) and "images" not in learned.refused and _has_media(request):
        learned.refused.add("images")
        return "images"
    return None


def _stated_limit(learned: Adaptations, request: ModelRequest, said: str) -> int | None:
    """The smaller output limit that an error states: the largest number below what was asked for."""
    numbers = [int(re.sub(r"\D", "", n)) for n in _NUMBER.findall(said)]
    if not numbers or not re.search(r"\bmax_(completion_)?tokens\b", said):
        return None
    asked = learned.limit(request.max_tokens) or max(numbers)  # without a wish, a default was sent
    return max((n for n in numbers if n < asked), default=None)


def _was_sent(name: str, request: ModelRequest) -> bool:
    match name:
        case "temperature":
            return request.temperature is not None
        case "top_p":
            return request.top_p is not None
        case "max_tokens" | "max_completion_tokens":
            return request.max_tokens is not None
        case _:
            return True


def _has_media(request: ModelRequest) -> bool:
    return any(has_media(m) for m in request.messages)
