"""`/browser`: the view of the browser that runs beside us, its state, and its size."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from nanobot.errors import ConfigError
from nanobot.http import Http
from nanobot.server.browser_proxy import BrowserProxy
from nanobot.server.event_stream import Closing, event_stream
from nanobot.server.exchange import Exchange
from nanobot.server.methods import Methods
from nanobot.server.problems import BadRequest
from nanobot.sse import format_event

PREFIX: Final = "/browser"
TARGET: Final = "http://127.0.0.1:6080"
LARGEST: Final = "4096x4096"
SMALLEST: Final = (640, 480)
STEP: Final = 8
"""Widths and heights are multiples of it."""
LOOK_S: Final = 1.0
TOOL_S: Final = 5.0

_SIZE: Final = re.compile(r"([1-9][0-9]{2,4})x([1-9][0-9]{2,4})")
_TEXT: Final = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))
_ANY: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class _Size(msgspec.Struct):
    width: int
    height: int


_sizes = msgspec.json.Decoder(_Size)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSettings:
    """`target`: the address of the view. `largest`: of the screen, in pixels."""

    target: str
    largest: tuple[int, int]
    display: str
    path: str
    """Where programs are looked for."""

    @staticmethod
    def of(env: Mapping[str, str]) -> BrowserSettings:
        """Raises `ConfigError` naming the variable whose value cannot be meant."""
        target = env.get("BROWSER_WEBSOCKET_TARGET") or TARGET
        place = urlsplit(target)
        if (
            place.scheme not in ("http", "https")
            or not place.hostname
            or place.path not in ("", "/")
            or place.query
        ):
            raise ConfigError(f"BROWSER_WEBSOCKET_TARGET is no address such as {TARGET}.")
        size = _SIZE.fullmatch(env.get("BROWSER_VIEW_MAX_RESOLUTION") or LARGEST)
        if size is None or int(size[1]) < SMALLEST[0] or int(size[2]) < SMALLEST[1]:
            raise ConfigError(
                f"BROWSER_VIEW_MAX_RESOLUTION is no size such as {LARGEST}, or one below 640x480."
            )
        return BrowserSettings(
            target=target,
            largest=(int(size[1]), int(size[2])),
            display=env.get("DISPLAY") or ":99",
            path=env.get("PATH", ""),
        )


class BrowserApi:
    """Handlers of `/browser` and everything below it."""

    def __init__(self, settings: BrowserSettings, http: Http, closing: Closing) -> None:
        self._settings = settings
        self._closing = closing
        self._proxy = BrowserProxy(http, settings.target, PREFIX)
        self._looking = anyio.Lock()
        self._resizing = anyio.Lock()
        self._looked_at = -LOOK_S
        self._windows: int | None = None
        self._size: tuple[int, int] | None = None

    def find(self, path: str) -> Methods | None:
        match path.removeprefix(PREFIX):
            case "/healthz":
                return {"GET": self.health}
            case "/status":
                return {"GET": self.status}
            case "/resize":
                return {"POST": self.resize}
            case rest if path.startswith(PREFIX) and (not rest or rest.startswith("/")):
                return dict.fromkeys(_ANY, self._proxy.pass_on)
            case _:
                return None

    async def health(self, http: Exchange) -> None:
        """`GET /browser/healthz`: that we are here."""
        await http.answer(200, _TEXT, b"ok")

    async def status(self, http: Exchange) -> None:
        """`GET /browser/status`: events `status` `{available, windowCount}`, at once and on change."""
        told = b""
        async with event_stream(http, closing=self._closing, keep_alive_s=LOOK_S) as write:
            while True:
                count = await self._count()
                state = msgspec.json.encode({"available": count is not None, "windowCount": count or 0})
                if state != told:
                    await write(format_event(state, event="status"))
                    told = state
                await anyio.sleep(LOOK_S)

    async def resize(self, http: Exchange) -> None:
        """`POST /browser/resize` `{width, height}`: make the screen that large, as near as it gets."""
        wanted = await http.read_json(_sizes, 1024)
        if wanted.width <= 0 or wanted.height <= 0:
            raise BadRequest(400, "size", "width and height must be above 0.")
        sides = zip((wanted.width, wanted.height), SMALLEST, self._settings.largest, strict=True)
        width, height = (_fitting(*side) for side in sides)
        async with self._resizing:
            if (width, height) != self._size:
                await self._run("xrandr", "--fb", f"{width}x{height}")
                self._size = (width, height)
                await self._maximise()
        await http.answer_json({"width": width, "height": height})

    async def _maximise(self) -> None:
        for line in (await self._run("wmctrl", "-l")).splitlines():
            window = line.split(" ", 1)[0]
            await self._run("wmctrl", "-i", "-r", window, "-b", "add,maximized_vert,maximized_horz")

    async def _count(self) -> int | None:
        """How many windows of a browser there are; None if that cannot be known. Looked up once a second,
        whoever asks how often."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= LOOK_S:
                try:
                    lines = (await self._run("wmctrl", "-lx")).lower().splitlines()
                    self._windows = sum("chrome" in line or "chromium" in line for line in lines)
                except BadRequest:
                    self._windows = None
                self._looked_at = time.monotonic()
            return self._windows

    async def _run(self, *words: str) -> str:
        """What a program prints. Raises `BadRequest` (500) if it fails."""
        settings = self._settings
        program = shutil.which(words[0], path=settings.path)
        if program is None:
            raise BadRequest(500, "browser", f"{words[0]} is not installed.")
        env = {"PATH": settings.path, "DISPLAY": settings.display}
        try:
            with anyio.fail_after(TOOL_S):
                done = await anyio.run_process([program, *words[1:]], env=env, check=False)
        except TimeoutError:
            raise BadRequest(500, "browser", f"{words[0]} did not end within {TOOL_S:g} s.") from None
        except OSError as e:
            raise BadRequest(500, "browser", f"{words[0]} cannot be run: {e.strerror}.") from e
        if done.returncode != 0:
            raise BadRequest(500, "browser", f"{words[0]} failed with status {done.returncode}.")
        return done.stdout.decode("utf-8", "replace")


def _fitting(wanted: int, least: int, most: int) -> int:
    within = min(max(wanted, least), most)
    return min(-(-within // STEP) * STEP, most)
