"""`nanobot chat`: talk to an agent in the terminal, or send one message and print the answer."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nanobot.cli.main import EXIT_FAILURE, EXIT_INTERRUPTED
from nanobot.cli.options import ConfigChoice, config_options, text
from nanobot.errors import NanobotError, UsageError

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from nanobot.agent.engine import Engine
    from nanobot.cli.screen import Screen
    from nanobot.config.model import Config
    from nanobot.store.rows import ThreadRow
    from nanobot.wire.call import Call

DEFAULT_KEY = "cli:direct"
EXIT_WORDS = {"exit", "quit", "/exit", "/quit", ":q"}
SECOND_CTRL_C_S = 2.0


@click.command()
@click.option(
    "-m", "--message", metavar="TEXT", help="Send TEXT, print the answer and exit (`-`: from stdin)."
)
@click.option(
    "-s", "--session", metavar="ID", type=text, help=f"Conversation by id or key (default {DEFAULT_KEY})."
)
@click.option("--new", is_flag=True, help="Start a fresh conversation.")
@click.option("--continue", "resume", is_flag=True, help="Go on with the most recent conversation.")
@click.option("--no-markdown", is_flag=True, help="Print answers as they are.")
@config_options
def command(
    choice: ConfigChoice, message: str | None, session: str | None, new: bool, resume: bool, no_markdown: bool
) -> int:
    """Talk to an agent in the terminal.

    Enter sends, Alt+Enter makes a new line. Ctrl-C stops the answer, twice at an empty prompt leaves.
    Piped input without --message is the message.
    """
    import anyio

    if sum((new, resume, session is not None)) > 1:
        raise UsageError("Use only one of --session, --new and --continue.")
    if message == "-" or (message is None and not (sys.stdin and sys.stdin.isatty())):
        message = sys.stdin.read() if sys.stdin else ""  # None: it was closed
    if message is not None and not message.strip():
        raise UsageError("The message is empty.")
    return anyio.run(_chat, choice.load(), message, session, new, resume, not no_markdown)


async def _chat(
    config: Config, message: str | None, session: str | None, new: bool, resume: bool, markdown: bool
) -> int:
    from nanobot.app import open_app
    from nanobot.cli.screen import Screen

    async with open_app(config) as app:
        app.models.choose(config.default_agent)  # a missing key is told before anything is asked
        thread = await _open_thread(app.engine, session, new=new, resume=resume)
        screen = Screen(markdown=markdown)
        if message is not None:
            return await _one_turn(app.engine, thread.id, message, screen)
        screen.greet(config.default_agent.display_name, app.models.default(), thread.key or thread.id)
        await _converse(config, app.engine, thread.id, screen)
        screen.note(f"Continue with: nanobot chat -s {thread.key or thread.id}")
        return 0


async def _open_thread(engine: Engine, session: str | None, *, new: bool, resume: bool) -> ThreadRow:
    folder = Path.cwd()
    if new:
        return await engine.open_thread(folder=folder)
    if resume and (recent := await engine.threads(limit=1)):
        return recent[0]
    if session is not None:
        from uuid import UUID

        try:
            return await engine.open_thread(id=str(UUID(session)))
        except ValueError:
            return await engine.open_thread(key=session, folder=folder)
    return await engine.open_thread(key=DEFAULT_KEY, folder=folder)


async def _converse(config: Config, engine: Engine, thread_id: str, screen: Screen) -> None:
    from prompt_toolkit import PromptSession

    from nanobot.cli.questions import CAPABILITIES, TerminalQuestions
    from nanobot.wire.call import Call, Caller

    prompt = _prompt_session(config.home / "cli-history")
    questions = TerminalQuestions(PromptSession(), screen)
    call = Call(caller=Caller(capabilities=CAPABILITIES), ask=questions.ask)
    hinted_at = -SECOND_CTRL_C_S
    while True:
        try:
            text = (await prompt.prompt_async("> ")).strip()
        except EOFError:
            return
        except KeyboardInterrupt:
            if time.monotonic() - hinted_at < SECOND_CTRL_C_S:
                return
            hinted_at = time.monotonic()
            screen.note("Ctrl-C again leaves; so does Ctrl-D.")
            continue
        if text.lower() in EXIT_WORDS:
            return
        if text:
            try:
                await _one_turn(engine, thread_id, text, screen, call)
            except NanobotError as e:
                screen.error(str(e))


async def _one_turn(
    engine: Engine, thread_id: str, text: str, screen: Screen, call: Call | None = None
) -> int:
    """Send `text` and show what happens until its turn ends. The exit status of that turn.

    `call`: how the person can be asked meanwhile; without one nobody can.
    """
    from nanobot.agent.engine import Input
    from nanobot.agent.events import TurnEnded

    async with engine.attach(thread_id, events_only=True) as attachment:
        turn = await engine.submit(thread_id, Input(text=text), call=call)
        with _on_interrupt(lambda: turn.cancel("stopped by the user")), screen.turn() as shown:
            async for event in attachment:
                shown(event)
                if isinstance(event.body, TurnEnded) and event.body.turn_id == turn.id:
                    return {"completed": 0, "cancelled": EXIT_INTERRUPTED}.get(event.body.stop, EXIT_FAILURE)
    return EXIT_FAILURE


@contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Generator[None]:
    """Within the block Ctrl-C calls `stop` instead of ending the program."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _prompt_session(history: Path) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    os.close(os.open(history, os.O_CREAT | os.O_WRONLY, 0o600))
    keys = KeyBindings()

    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    keys.add("escape", "enter")(new_line)
    keys.add("c-j")(new_line)
    return PromptSession(history=FileHistory(str(history)), key_bindings=keys, enable_suspend=True)
