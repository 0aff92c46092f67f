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
    read = [_message(number, each, folder) for number, each in enumerate(messages, start=1)]
    marked = [
        index
        for index, message in enumerate(messages)
        if isinstance(message, dict) and message.get("under_test")
    ]
    if len(marked) > 1:
        raise UnreadMessage("marks more than one message as under_test")
    # When none is marked: material at the end, or the last turn of the user.
    users = [index for index, message in enumerate(read) if message.role is Role.USER]
    usual = users[-1] if users and read[-1].role not in MATERIAL else len(read) - 1
    under_test = marked[0] if marked else usual
    stated = images if isinstance(images, list) else [images]
    if beside := tuple(_image(each, folder) for each in stated if each not in (None, "")):
        read[under_test] = replace(read[under_test], images=beside)
    tested = read[under_test]
    if not (tested.content.strip() or tested.images or tested.calls):
        raise UnreadMessage(f"message {under_test + 1}, the one under test, is empty")
    return Prompt(messages=tuple(read), under_test=under_test)


def _message(number: int, message: Any, folder: Path) -> Message:
    role = ROLE_WORDS.get(str(message.get("role"))) if isinstance(message, dict) else None
    if role is None:
        raise UnreadMessage(f"message {number} needs a role ({', '.join(Role)})")
    content, calls = message.get("content"), message.get("tool_calls") or ()
    parts = [{"type": "text", "text": "" if content is None and calls else content}]
    if isinstance(content, list):
        parts = content
    try:
        texts = [part["text"] for part in parts if part["type"] == "text"]
        urls = [part["image_url"] for part in parts if part["type"] == "image_url"]
        named = [(each["id"], each["function"]) for each in calls]
        asked = tuple(ToolCall(i, each["name"], _as_text(each["arguments"])) for i, each in named)
        answers = (message.get("tool_call_id") or "") if role is Role.TOOL else ""
        content = "\n".join(texts)
        "".join([answers, *(word for call in asked for word in call)])  # texts, all of them
        if len(texts) + len(urls) < len(parts):
            raise TypeError("a part of another kind")  # noqa: TRY301 - as a part without text
    except (KeyError, TypeError, AttributeError) as error:
        needs = "a content that is text, or parts of type text and image_url"
        needs = "tool_calls with id, name and arguments" if calls else needs
        raise UnreadMessage(f"message {number} needs {needs}") from error
    urls = [url.get("url") if isinstance(url, dict) else url for url in urls]
    images = tuple(_image(url, folder) for url in urls)
    return Message(role=role, content=content, images=images, calls=asked, answers=answers)


def _as_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _image(stated: object, folder: Path) -> Image:
    """Read a `data:` URL, or a file below a folder; or say what is wrong with it."""
    if isinstance(stated, dict):  # as a cell of Parquet holds it: bytes, or else a path
        held = stated.get("bytes")
        content = held if _INLINE.match(str(held)) else "data:;base64,"  # text is no image
        stated = stated.get("path") if held is None else content
    if not isinstance(stated, str) or (_ADDRESS.match(stated) and not _INLINE.match(stated)):
        raise UnreadMessage("needs an image as a file's name or data: URL; no address is fetched")
    content, place = _file(stated, folder)
    if len(content) > MOST_IMAGE_BYTES:
        raise UnreadMessage(f"has an image above {MOST_IMAGE_BYTES >> 20} MiB")
    kind = next((kind for kind, begin in _KINDS.items() if begin.match(content)), None)
    if kind is None:
        raise UnreadMessage("has an image that is no PNG, JPEG, GIF or WebP")
    return Image(sha256=sha256(content).hexdigest(), media_type=kind, place=place)


def _file(stated: str, folder: Path) -> tuple[bytes, str]:
    """Read bytes from a URL, or no more than an image may have from a file below the folder."""
    try:
        if inline := _INLINE.match(stated):
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
