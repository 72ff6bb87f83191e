"""The tools of the conformance suite that ask the client, in the way of the era.

A legacy client is sent requests while it waits; a modern one gets `input_required` and calls again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

MISSING_CAPABILITY = -32021

Question = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest
Answer = Callable[[Any, Any], Awaitable[Any]]

STRING = {"type": "string"}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [
    {"const": f"value{n}", "title": f"{word} Option"}
    for n, word in enumerate(("First", "Second", "Third"), 1)
]
PLAIN = ["option1", "option2", "option3"]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": PLAIN},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["One", "Two", "Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def is_modern(ctx: Any) -> bool:
    return ctx.protocol_version >= "2026"


def say(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def text(words: str) -> types.CallToolResult:
    return types.CallToolResult(content=[say(words)])


def form(message: str, **properties: Any) -> types.ElicitRequest:
    """A form all of whose fields have to be filled in, save those that are so already or are a choice."""
    required = [name for name, field in properties.items() if field.keys() == {"type"}]
    schema = {"type": "object", "properties": properties, "required": required}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(words: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=say(words))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


async def answer(ctx: Any, params: Any, key: str, question: Question) -> Any:
    """What the client says to `question`; None if it has yet to be asked, and `asked` is what to return."""
    if is_modern(ctx):
        return _answers(params).get(key)
    session, id = ctx.session, ctx.request_id
    match question:
        case types.ElicitRequest(params=types.ElicitRequestFormParams() as wanted):
            return await session.elicit_form(wanted.message, wanted.requested_schema, related_request_id=id)
        case types.CreateMessageRequest(params=wanted):
            return await session.create_message(
                messages=wanted.messages, max_tokens=wanted.max_tokens, related_request_id=id
            )
        case _:
            related = ServerMessageMetadata(related_request_id=id)
            return await session.send_request(question, types.ListRootsResult, metadata=related)


def asked(questions: Mapping[str, Question], state: str | None = None) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=dict(questions), request_state=state)


def asks(
    key: str, question: Question, show: Callable[[Any], str], *, accepts: Callable[[Any], bool] = bool
) -> Answer:
    """A tool with one question, asked again until the answer is one that it accepts."""

    async def tool(ctx: Any, params: Any) -> Any:
        said = await answer(ctx, params, key, question)
        if said is None or not accepts(said):
            return asked({key: question})
        return text(show(said))

    return tool


async def sampling(ctx: Any, params: Any) -> Any:
    return await asks(
        "answer", sample(_argument(params, "prompt")), lambda said: f"LLM response: {said.content.text}"
    )(ctx, params)


async def elicitation(ctx: Any, params: Any) -> Any:
    question = form(_argument(params, "message"), username=STRING, email=STRING)
    return await asks("answer", question, _shown("User response"))(ctx, params)


async def several(ctx: Any, params: Any) -> Any:
    questions: dict[str, Question] = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sample("Generate a greeting"),
        "client_roots": types.ListRootsRequest(),
    }
    said = [await answer(ctx, params, key, question) for key, question in questions.items()]
    return asked(questions, "several") if None in said else text("everything was answered")


async def rounds(ctx: Any, params: Any) -> Any:
    """Asks for a name, then for a colour; the state says how far it is."""
    for number, field in enumerate(("name", "color"), 1):
        question = form(f"Step {number}", **{field: STRING})
        done = (
            is_modern(ctx) and params.request_state is not None and params.request_state > f"round-{number}"
        )
        if not done and await answer(ctx, params, f"step{number}", question) is None:
            return asked({f"step{number}": question}, f"round-{number}")
    return text("both steps done")


async def with_state(ctx: Any, params: Any) -> Any:
    """Works only with the state that it gave out itself."""
    question = form("Please confirm", ok={"type": "boolean"})
    state = f"state-of-{params.name}"
    if is_modern(ctx) and params.request_state not in (None, state):
        raise MCPError(types.INVALID_PARAMS, "this is not my state")
    if await answer(ctx, params, "confirm", question) is None:
        return asked({"confirm": question}, state)
    return text("state-ok")


async def what_client_can(ctx: Any, params: Any) -> Any:
    """Asks only in ways that the client has declared."""
    can = capabilities(ctx)
    questions: dict[str, Question] = {}
    if "sampling" in can:
        questions["thought"] = sample("Say something.")
    if "elicitation" in can:
        questions["name"] = form("What is your name?", name=STRING)
    if not questions:
        return text("You can be asked nothing.")
    said = [await answer(ctx, params, key, question) for key, question in questions.items()]
    return asked(questions) if None in said else text("everything was answered")


async def needs_sampling(ctx: Any, params: Any) -> Any:
    if "sampling" not in capabilities(ctx):
        wanted: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(MISSING_CAPABILITY, "this tool needs sampling", wanted)
    return text("You can sample.")


def capabilities(ctx: Any) -> Mapping[str, Any]:
    """What the client of this request has declared."""
    declared = ctx.session.client_capabilities
    return {} if declared is None else declared.model_dump(exclude_none=True)


def _answers(params: Any) -> Mapping[str, Any]:
    return params.input_responses or {}


def _content(said: Any) -> Mapping[str, Any]:
    return getattr(said, "content", None) or {}


def _argument(params: Any, name: str) -> str:
    given: Mapping[str, Any] = params.arguments or {}
    return given.get(name, "")


def _shown(what: str) -> Callable[[Any], str]:
    return lambda said: f"{what}: action={said.action}, content={json.dumps(said.content)}"


ASKING: Mapping[str, Answer] = {
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": asks(
        "answer", form("Check these values", **DEFAULTS), _shown("Elicitation completed")
    ),
    "test_elicitation_sep1330_enums": asks(
        "answer", form("Choose", **ENUMS), _shown("Elicitation completed")
    ),
    "test_input_required_result_elicitation": asks(
        "user_name",
        form("What is your name?", name=STRING),
        lambda said: f"Hello, {_content(said).get('name')}!",
        accepts=lambda said: said.action != "accept" or isinstance(_content(said).get("name"), str),
    ),
    "test_input_required_result_sampling": asks(
        "capital_question", sample("What is the capital of France?"), lambda said: said.content.text
    ),
    "test_input_required_result_list_roots": asks(
        "client_roots", types.ListRootsRequest(), lambda said: ", ".join(str(root.uri) for root in said.roots)
    ),
    "test_input_required_result_request_state": with_state,
    "test_input_required_result_tampered_state": with_state,
    "test_input_required_result_multiple_inputs": several,
    "test_input_required_result_multi_round": rounds,
    "test_input_required_result_capabilities": what_client_can,
    "test_streaming_elicitation": asks(
        "user_name", form("What is your name?", name=STRING), lambda said: "thank you"
    ),
    "test_missing_capability": needs_sampling,
}
