"""The conversation of a row: messages as chat services take them, with images and calls of tools.

Images are hashed when they are read, from files beside the data or `data:` URLs; none is fetched.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.limits import MOST_IMAGE_BYTES
from guardmark.core.sample import MATERIAL, Image, Message, Prompt, Role, ToolCall
from guardmark.datasets.formats.chat_forms import common_messages
from guardmark.datasets.formats.fields import ROLE_WORDS

if TYPE_CHECKING:
    from pathlib import Path

_KINDS: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""Media type to how such a file begins: what its name or its URL says is not believed."""
_INLINE: Final = re.compile(r"data:[\w/.+-]*;base64,")
_ADDRESS: Final = re.compile(r"[a-zA-Z][\w+.-]+:")


class UnreadMessage(Exception):
    """What is wrong with a message or an image, in words that follow its name."""


def read_prompt(messages: object, images: object, folder: Path) -> Prompt:
    """Read a conversation, and the images that are shown with the message under test."""
    if not isinstance(messages, list) or not messages:
        raise UnreadMessage("is not a list of messages")
    messages = common_messages(messages)
    read = []
    marked = []
    for index, message in enumerate(messages):
        read.append(_message(index + 1, message, folder))
        if isinstance(message, dict) and message.get("under_test"):
            marked.append(index)
    if len(marked) > 1:
        raise UnreadMessage("marks more than one message as under_test")
    if marked:
        under_test = marked[0]
    else:
        under_test = _usual_under_test(read)
    beside = _images_beside(images, folder)
    if beside:
        read[under_test] = replace(read[under_test], images=beside)
    tested = read[under_test]
    if not (tested.content.strip() or tested.images or tested.calls):
        raise UnreadMessage(f"message {under_test + 1}, the one under test, is empty")
    return Prompt(messages=tuple(read), under_test=under_test)


def _usual_under_test(messages: list[Message]) -> int:
    """Return which message is under test where none is marked.

    That is material at the end, or else the last turn of the user.
    """
    last = len(messages) - 1
    if messages[last].role in MATERIAL:
        return last
    for index in range(last, -1, -1):
        if messages[index].role is Role.USER:
            return index
    return last


def _images_beside(stated: object, folder: Path) -> tuple[Image, ...]:
    """Read the images that a row states beside its messages: one, or a list."""
    if not isinstance(stated, list):
        stated = [stated]
    images = []
    for image in stated:
        if image not in (None, ""):
            images.append(_image(image, folder))
    return tuple(images)


def _message(number: int, message: Any, folder: Path) -> Message:
    """Read one message; `number` counts from 1, for what is said of it."""
    role = None
    if isinstance(message, dict):
        role = ROLE_WORDS.get(str(message.get("role")))
    if role is None:
        raise UnreadMessage(f"message {number} needs a role ({', '.join(Role)})")
    stated_calls = message.get("tool_calls") or ()
    try:
        texts, urls = _texts_and_images(message.get("content"), has_calls=bool(stated_calls))
        calls = _calls(stated_calls)
        answers = ""
        if role is Role.TOOL:
            answers = message.get("tool_call_id") or ""
        _require_texts(answers, *texts)
    except (KeyError, TypeError, AttributeError) as error:
        needs = "a content that is text, or parts of type text and image_url"
        if stated_calls:
            needs = "tool_calls with id, name and arguments"
        raise UnreadMessage(f"message {number} needs {needs}") from error
    return Message(
        role=role,
        content="\n".join(texts),
        images=tuple(_image(url, folder) for url in urls),
        calls=calls,
        answers=answers,
    )


def _texts_and_images(content: Any, *, has_calls: bool) -> tuple[list[str], list[object]]:
    """Take the texts and the images out of a content: a text, or a list of parts.

    A message that only calls tools has no content. A part of another kind raises `TypeError`.
    """
    if content is None and has_calls:
        return [""], []
    if not isinstance(content, list):
        return [content], []
    texts: list[str] = []
    urls: list[object] = []
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "image_url":
            url = part["image_url"]
            if isinstance(url, dict):
                url = url.get("url")
            urls.append(url)
        else:
            raise TypeError("a part of another kind")
    return texts, urls


def _calls(stated: Any) -> tuple[ToolCall, ...]:
    """Read the tools that a message calls."""
    calls = []
    for call in stated:
        function = call["function"]
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        _require_texts(call["id"], function["name"], arguments)
        calls.append(ToolCall(call["id"], function["name"], arguments))
    return tuple(calls)


def _require_texts(*values: object) -> None:
    """Raise `TypeError` for a value that is no text."""
    for value in values:
        if not isinstance(value, str):
            raise TypeError("expected a text")


def _image(stated: object, folder: Path) -> Image:
    """Read a `data:` URL, or a file below a folder; or say what is wrong with it."""
    if isinstance(stated, dict):  # as a cell of Parquet holds it: bytes, or else a path
        held = stated.get("bytes")
        if held is None:
            stated = stated.get("path")
        elif _INLINE.match(str(held)):
            stated = held
        else:
            stated = "data:;base64,"  # text is no image
    if not isinstance(stated, str) or (_ADDRESS.match(stated) and not _INLINE.match(stated)):
        raise UnreadMessage("needs an image as a file's name or data: URL; no address is fetched")
    content, place = _file(stated, folder)
    if len(content) > MOST_IMAGE_BYTES:
        raise UnreadMessage(f"has an image above {MOST_IMAGE_BYTES >> 20} MiB")
    for media_type, beginning in _KINDS.items():
        if beginning.match(content):
            digest = sha256(content).hexdigest()
            return Image(sha256=digest, media_type=media_type, place=place)
    raise UnreadMessage("has an image that is no PNG, JPEG, GIF or WebP")


def _file(stated: str, folder: Path) -> tuple[bytes, str]:
    """Read bytes from a URL, or no more than an image may have from a file below the folder."""
    inline = _INLINE.match(stated)
    try:
        if inline:
            return b64decode(stated[inline.end() :], validate=True), stated
        path = (folder / stated).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise UnreadMessage("names an image outside its folder (images: FOLDER states it)")
        if not path.is_file():
            raise UnreadMessage("names an image that is not there")
        with path.open("rb") as file:
            return file.read(MOST_IMAGE_BYTES + 1), str(path)
    except (OSError, ValueError, RuntimeError) as error:  # no base64, no name, links in a circle
        raise UnreadMessage(f"has an image that cannot be read ({error!s:.60})") from error
