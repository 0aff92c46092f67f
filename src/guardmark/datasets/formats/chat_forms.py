"""How others write a conversation, brought into the form of the common chat protocol.

ShareGPT (`from`, `value`), Ollama (calls without ids), the Responses API (`input_text` parts),
Anthropic's blocks (`tool_use`, `tool_result`), Gemini (`parts`), Bedrock (parts of a `text` alone)
and LangChain (`type`, `data`).
What is not known is left as it is, and is refused by whoever reads the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_LANGCHAIN: Final = frozenset({"human", "ai", "system", "tool"})
"""Types by which LangChain names who speaks."""
_ROLES_OF_RESPONSES: Final = {"function_call_output": "tool", "function_call": "assistant"}


def is_conversation(value: object) -> bool:
    """Tell whether a value is a list of messages, in any of these forms."""
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(message: object) -> bool:
    """Tell whether a value says who speaks, and something beside."""
    if not isinstance(message, dict) or len(message) < 2:
        return False
    if "role" in message or "from" in message:
        return True
    return message.get("type") in _LANGCHAIN and ("content" in message or "data" in message)


def common_messages(messages: Sequence[object]) -> list[object]:
    """Return messages in the form of the common chat protocol."""
    made: list[object] = []
    for number, message in enumerate(messages, start=1):
        if isinstance(message, dict):
            made.extend(_common(message, number))
        else:
            made.append(message)
    return made


def _with_role_and_content(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that says by our names who speaks, and what."""
    turn = dict(message)
    if "role" not in turn and turn.get("type") in _LANGCHAIN:
        speaker = turn["type"]
        held = turn.pop("data", None)
        if isinstance(held, dict):
            turn.update(held)
        turn["role"] = speaker
    if "role" not in turn and "from" in turn:
        turn["role"] = turn.pop("from")
    if "content" not in turn and isinstance(turn.get("parts"), list):
        turn["content"] = [_typed(part) for part in turn.pop("parts")]
    if "content" not in turn and "value" in turn:
        turn["content"] = turn.pop("value")
    return turn


def _common(message: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Bring one message into the common form: tools' results become messages of their own."""
    turn = _with_role_and_content(message)
    if turn.get("type") in _ROLES_OF_RESPONSES:
        yield _item_of_responses(turn, number)
        return
    calls = turn.get("tool_calls")
    if isinstance(calls, list):
        turn["tool_calls"] = [_call(call, number, at) for at, call in enumerate(calls)]
    content = turn.get("content")
    if not isinstance(content, list):
        yield turn
        return
    results = 0
    uses: list[dict[str, Any]] = []
    rest: list[object] = []
    for part in map(_typed, content):
        if _is_of(part, "tool_result"):
            results += 1
            yield {
                "role": "tool",
                "content": _words(part.get("content")),
                "tool_call_id": part.get("tool_use_id") or "",
            }
        elif _is_of(part, "tool_use"):
            uses.append(_use(part, number, len(uses)))
        else:
            rest.append(_part(part))
    if results and not rest and not uses:
        return
    turn["content"] = rest
    if uses:
        turn["tool_calls"] = uses
        if not rest:
            turn["content"] = None
    yield turn


def _typed(part: Any) -> Any:
    """Name the kind of a part that says by its only member what it is, as Gemini and Bedrock do."""
    if isinstance(part, dict) and "type" not in part and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def _is_of(part: object, kind: str) -> bool:
    """Tell whether a part is of a kind."""
    return isinstance(part, dict) and part.get("type") == kind


def _part(part: Any) -> Any:
    """Bring one part of a content into the common form."""
    if not isinstance(part, dict):
        return part
    if part.get("type") in _TEXT_PARTS:
        return {"type": "text", "text": part.get("text")}
    if part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": part.get("image_url")}
    source = part.get("source")
    if part.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": url}
    return part


def _words(content: object) -> object:
    """Return the text of a tool's result: a text, or the texts of its parts."""
    if not isinstance(content, list):
        return content
    parts = [_part(part) for part in content]
    if all(_is_of(part, "text") and isinstance(part.get("text"), str) for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _call(call: object, number: int, at: int) -> object:
    """Give a call the id that it lacks: which message it stands in, and at which place."""
    if not isinstance(call, dict) or "function" not in call or "id" in call:
        return call
    return {**call, "id": f"call-{number}-{at + 1}", "type": "function"}


def _use(part: dict[str, Any], number: int, at: int) -> dict[str, Any]:
    """Bring Anthropic's call of a tool into the common form."""
    function = {"name": part.get("name"), "arguments": part.get("input")}
    return {"id": part.get("id") or f"call-{number}-{at + 1}", "function": function}


def _item_of_responses(item: dict[str, Any], number: int) -> dict[str, Any]:
    """Bring a call, or the output of one, of the Responses API into the common form."""
    role = _ROLES_OF_RESPONSES[item["type"]]
    if role == "tool":
        return {"role": role, "content": item.get("output"), "tool_call_id": item.get("call_id")}
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    call = {"id": item.get("call_id") or f"call-{number}-1", "function": function}
    return {"role": role, "content": None, "tool_calls": [call]}
