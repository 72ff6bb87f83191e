"""What the terminal shows of a turn: streamed Markdown on a terminal, the bare answer in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nanobot.agent.events import (
    Condensed,
    Delta,
    Event,
    MessageAdded,
    Retrying,
    ToolFinished,
    ToolStarted,
    TurnEnded,
)
from nanobot.cli.text import block_text, call_line, shorten, visible
from nanobot.llm.model import TextDelta

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESH_PER_S = 12
Shown = Callable[[Event], None]


class Screen:
    """One terminal (or pipe). `turn()` gives a function that is fed the events of one turn."""

    def __init__(self, *, markdown: bool = True) -> None:
        from rich.console import Console

        self._out = Console(highlight=False)
        self._err = Console(stderr=True, highlight=False)
        self._markdown = markdown

    def greet(self, agent: str, model: str, thread: str) -> None:
        self._out.print(f"{agent} · {model} · {thread}", style="bold", markup=False)

    def note(self, text: str) -> None:
        self._err.print(visible(text), style="dim", markup=False)

    def ask(self, text: str) -> None:
        """A part of a question; what is typed comes after it."""
        self._out.print(visible(text), style="bold", markup=False)

    def error(self, text: str) -> None:
        self._err.print(visible(text), style="red", markup=False)

    @contextmanager
    def turn(self) -> Generator[Shown]:
        if not self._out.is_terminal:
            yield self._pipe
            return
        answer = StreamedAnswer(self._out, markdown=self._markdown)
        try:
            yield lambda event: self._show(event, answer)
        finally:
            answer.finish()

    def _show(self, event: Event, answer: StreamedAnswer) -> None:
        match event.body:
            case Delta(_, TextDelta(_, text)):
                answer.add(text)
            case MessageAdded():
                answer.finish()
            case _:
                self._tool_or_end(event, self._out)

    def _pipe(self, event: Event) -> None:
        """Tools and troubles go to stderr, only the last message of the turn to stdout."""
        match event.body:
            case MessageAdded(message) if message.role == "assistant" and not message.calls:
                print(message.text, flush=True)
            case _:
                self._tool_or_end(event, self._err)

    def _tool_or_end(self, event: Event, console: Console) -> None:
        match event.body:
            case ToolStarted(_, call):
                console.print(f"● {call_line(call)}", markup=False)
            case ToolFinished(_, call, output, ms):
                mark, style = ("✗", "red") if output.is_error else ("✓", "green")
                summary = shorten(" ".join(map(block_text, output.content)), 100)
                console.print(f"{mark} {call.name} {ms / 1000:.1f}s {summary}", style=style, markup=False)
            case Retrying(status) if status.state == "waiting":
                self.note(f"The model is not available ({status.kind}); next try in {status.wait_s:.0f} s.")
            case Condensed(before, after):
                self.note(f"The conversation was condensed from about {before:,} to {after:,} tokens.")
            case TurnEnded(_, "cancelled"):
                self.note("stopped")
            case TurnEnded(error=error) if error:
                self.error(error)
            case _:
                pass


class StreamedAnswer:
    """Markdown that grows: finished blocks are printed once, only the last one is drawn again.

    The work per piece of text does not depend on how long the answer already is.
    """

    def __init__(self, console: Console, *, markdown: bool) -> None:
        self._console = console
        self._markdown = markdown
        self._block = ""  # lines of the unfinished block
        self._line = ""  # the line whose end has not arrived
        self._fence = ""
        self._live: Live | None = None
        self._drawing: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        if not self._markdown:
            sys.stdout.write(visible(text))
            sys.stdout.flush()
            return
        self._show_tail()
        *lines, rest = (self._line + text).split("\n")
        for line in lines:
            self._end_line(line)
        self._line = rest

    def finish(self) -> None:
        """Print what is left; the next text starts a new answer."""
        if not self._markdown:
            return
        rest, self._block, self._line, self._fence = self._block + self._line, "", "", ""
        self._hide_tail()
        if rest.strip():
            self._console.print(_markdown(rest))

    def _end_line(self, line: str) -> None:
        self._block += line + "\n"
        marker = line.strip()[:3]
        if self._fence:
            self._fence = "" if marker == self._fence else self._fence
        elif marker in ("```", "~~~"):
            self._fence = marker
        elif not line.strip() and self._block.strip():
            finished, self._block = self._block, ""
            self._console.print(_markdown(finished))

    def _tail(self) -> RenderableType:
        return _markdown(self._block + self._line)

    def _show_tail(self) -> None:
        """Draw the tail now, or a little later if it was drawn a moment ago."""
        if not self._console.is_terminal:
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=self._console,
                get_renderable=self._tail,
                auto_refresh=False,
                transient=True,
                vertical_overflow="crop",
            )
            self._live.start()
        if self._drawing is None:
            self._drawing = asyncio.get_running_loop().call_later(1 / REFRESH_PER_S, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        if self._live is not None:
            self._live.refresh()

    def _hide_tail(self) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            self._drawing = None
        if self._live is not None:
            self._live.stop()
            self._live = None


def _markdown(text: str) -> RenderableType:
    from rich.markdown import Markdown

    return Markdown(visible(text))
