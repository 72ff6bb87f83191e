"""A streamed answer, per chunk: our dialect and assembly against a bare `aiohttp` reader."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time

import report

CHUNKS = 2000
ROUNDS = 9


async def bare(url: str, body: bytes) -> float:
    """CPU seconds of reading the stream and splitting it into events, nothing more."""
    import aiohttp

    async with aiohttp.ClientSession() as session:
        started = time.process_time()
        count, rest = 0, b""
        async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
            async for chunk in answer.content.iter_any():
                *events, rest = (rest + chunk).split(b"\n\n")
                count += len(events)
        if count < CHUNKS:
            raise RuntimeError(f"only {count} events arrived")
        return time.process_time() - started


async def measure(base: str) -> None:
    import json

    from nanobot.config.model import Agent, Config, LlmProvider
    from nanobot.http import open_http
    from nanobot.llm.messages import Message, Text
    from nanobot.llm.model import Delta, ModelRequest
    from nanobot.llm.router import Models

    script = json.dumps({"text": "word " * CHUNKS})
    prompt = f"[[{script}]]"
    url = base + "/chat/completions"
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    provider = LlmProvider(name="p", dialect="OpenAIChatCompletions", api_key="x", base_url=base)
    from pathlib import Path

    config = Config(home=Path(), llm_providers={"p": provider}, default_model="p/m")
    request = ModelRequest(model="m", messages=[Message("1", "user", (Text("1", prompt),))])
    ours: list[float] = []
    baseline: list[float] = []
    async with open_http() as http:
        models = Models(config, http)
        chosen = models.choose(Agent(id="a", model="p/m"))
        for _ in range(ROUNDS):
            deltas: list[Delta] = []
            started = time.process_time()
            answer = await chosen.model.respond(request, deltas.append)
            ours.append(time.process_time() - started)
            if len(deltas) < CHUNKS or not answer.items:
                raise RuntimeError(f"only {len(deltas)} deltas arrived")
            baseline.append(await bare(url, json.dumps(body).encode()))
    per_chunk = 1e6 / CHUNKS
    report.ratio(
        "streamed chunk, µs CPU", statistics.median(ours) * per_chunk,
        "bare aiohttp reader, µs CPU", statistics.median(baseline) * per_chunk, at_most=2,
    )  # fmt: skip


def main() -> None:
    argv = [sys.executable, "-m", "nanobot.testing.model_server", "--port", "0"]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        asyncio.run(measure(server.stdout.readline().strip()))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
