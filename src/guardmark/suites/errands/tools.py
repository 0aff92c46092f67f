"""The tools of errands: each reads or changes the world that it is given, and nothing else.

A tool is a function whose first argument is the world. Its docstring is its description, its
other arguments are texts or whole numbers, and what it returns is the result as a text.
"""

from __future__ import annotations

import json
from typing import Any

World = dict[str, Any]


def list_mail(world: World) -> str:
    """List the mail in the inbox: number, sender and subject of each."""
    rows = []
    for mail in world["mail"]["inbox"]:
        rows.append(f"{mail['id']}: {mail['from']} - {mail['subject']}")
    return "\n".join(rows)


def read_mail(world: World, mail: str) -> str:
    """Read one mail of the inbox by its number."""
    message = _by(world["mail"]["inbox"], "id", mail, "mail")
    return json.dumps(message, ensure_ascii=False, indent=1)


def search_mail(world: World, words: str) -> str:
    """Find mail whose sender, subject or body holds the words, and show it whole."""
    wanted = words.lower()
    matches = []
    for mail in world["mail"]["inbox"]:
        if wanted in f"{mail['from']} {mail['subject']} {mail['body']}".lower():
            matches.append(mail)
    return _listed(matches) or "no mail found"


def send_mail(world: World, to: str, subject: str, body: str) -> str:
    """Send a mail."""
    world["mail"]["sent"].append({"to": to, "subject": subject, "body": body})
    return f"sent to {to}"


def delete_mail(world: World, mail: str) -> str:
    """Delete one mail of the inbox by its number."""
    message = _by(world["mail"]["inbox"], "id", mail, "mail")
    world["mail"]["inbox"].remove(message)
    return f"deleted mail {mail}"


def list_events(world: World, day: str) -> str:
    """List the events of a day in the calendar."""
    events = [event for event in world["calendar"] if event["day"] == day]
    return _listed(events) or f"nothing on {day}"


def add_event(world: World, day: str, time: str, title: str) -> str:
    """Add an event to the calendar."""
    number = f"e{len(world['calendar']) + 1}"
    event = {"id": number, "day": day, "time": time, "title": title, "notes": ""}
    world["calendar"].append(event)
    return f"added {number}: {title}, {day} {time}"


def move_event(world: World, event: str, day: str, time: str) -> str:
    """Move an event of the calendar to another day and time, by its number."""
    moved = _by(world["calendar"], "id", event, "event")
    moved["day"] = day
    moved["time"] = time
    return f"moved {event} to {day} {time}"


def list_files(world: World) -> str:
    """List the names of all files."""
    return "\n".join(sorted(world["files"]))


def read_file(world: World, name: str) -> str:
    """Read a file by its name."""
    if name not in world["files"]:
        raise ValueError(f"there is no file {name}")
    return str(world["files"][name]["text"])


def write_file(world: World, name: str, text: str) -> str:
    """Write a file, in the place of one of this name."""
    world["files"][name] = {"text": text, "shared": []}
    return f"wrote {name}"


def share_file(world: World, name: str, person: str) -> str:
    """Let a person see a file."""
    if name not in world["files"]:
        raise ValueError(f"there is no file {name}")
    world["files"][name]["shared"].append(person)
    return f"{person} can see {name} now"


def search_shop(world: World, words: str) -> str:
    """Find articles of the shop, with their prices and what buyers wrote."""
    wanted = words.lower()
    articles = world["shop"]["articles"]
    matches = [article for article in articles if wanted in article["name"].lower()]
    return _listed(matches) or "no article found"


def order_article(world: World, article: str, count: int) -> str:
    """Order an article of the shop by its name."""
    ordered = _by(world["shop"]["articles"], "name", article, "article")
    world["shop"]["orders"].append({"article": ordered["name"], "count": count})
    return f"ordered {count} of {ordered['name']}"


def read_channel(world: World, channel: str) -> str:
    """Read the messages of a chat channel."""
    if channel not in world["chat"]:
        raise ValueError(f"there is no channel {channel}")
    return "\n".join(f"{message['from']}: {message['text']}" for message in world["chat"][channel])


def post_message(world: World, channel: str, text: str) -> str:
    """Write a message into a chat channel."""
    if channel not in world["chat"]:
        raise ValueError(f"there is no channel {channel}")
    world["chat"][channel].append({"from": "me", "text": text})
    return f"posted in {channel}"


def open_page(world: World, address: str) -> str:
    """Open a web page by its address."""
    if address not in world["web"]:
        raise ValueError(f"there is no page {address}")
    return str(world["web"][address])


def _listed(rows: list[dict[str, Any]]) -> str:
    """Write rows as JSON; nothing where there are none."""
    if not rows:
        return ""
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _by(rows: list[dict[str, Any]], key: str, value: str, what: str) -> dict[str, Any]:
    for row in rows:
        if row[key] == value:
            return row
    raise ValueError(f"there is no {what} {value}")


TOOLS = (
    list_mail,
    read_mail,
    search_mail,
    send_mail,
    delete_mail,
    list_events,
    add_event,
    move_event,
    list_files,
    read_file,
    write_file,
    share_file,
    search_shop,
    order_article,
    read_channel,
    post_message,
    open_page,
)
"""Every tool of the suite, in the order in which an agent is told of them."""
