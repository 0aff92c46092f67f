"""Serves the pages on this machine, and to others only where the options say so."""

from __future__ import annotations

import ipaddress
import logging
import os
import platform
import secrets
import socket
from asyncio import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import ConfigError, needs
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LEAST_TOKEN: Final = 16  # characters of a token, at least

_PATIENCE_S: Final = 0.5
"""Time that pages under way have to be sent once somebody ends the server."""
_MADE_BYTES: Final = 24  # of randomness in a token that is made here
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, in order to be refused
_WEB: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """What is shown, and to whom.

    Attributes:
        root: Folder below which runs are looked for.
        host: Address to listen on.
        port: Port to listen on.
        names: Names under which browsers may ask, beside that address.
        allow_remote: Whether other machines may ask.
        token_env: Variable that holds the token.
        no_token: Whether no token is asked for.
        texts: Whether texts of samples are shown.
    """

    root: Path
    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()
    allow_remote: bool = False
    token_env: str = ""
    no_token: bool = False
    texts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is being served: the address to open, with the token where it was made here."""

    url: str
    runs: int
    needs_token: bool
    is_open: bool


def serve(options: ViewOptions, *, on_ready: Callable[[Serving], None]) -> None:
    """Serve pages over the runs below a folder until interrupted."""
    token = check_options(options)
    made = ""
    if not token and not options.no_token:
        # Every local user can reach a loopback address, whatever the mode of the folder is.
        made = secrets.token_urlsafe(_MADE_BYTES)
    with needs("The pages need starlette and uvicorn", "view"):
        import uvicorn

        from guardmark.view.site import Rules, build_site
    from guardmark.view.index import RunIndex

    index = RunIndex(options.root)
    runs = len(index.entries())
    with _listen(options.host, options.port) as listener:
        port = listener.getsockname()[1]
        rules = Rules(hosts=host_names(options, port), token=token or made)
        config = uvicorn.Config(
            build_site(index, rules, texts=options.texts),
            log_level="warning",
            access_log=False,  # a token may stand in an address
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_PATIENCE_S,  # type: ignore[arg-type]  # half a second is one
        )
        url = f"http://{_bracketed(options.host)}:{port}/"
        if made:
            url += f"?token={made}"
        is_open = not (token or made)
        on_ready(Serving(url=url, runs=runs, needs_token=bool(token), is_open=is_open))
        logging.getLogger("uvicorn.error").addFilter(_says_more_than_the_end)
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def _says_more_than_the_end(line: logging.LogRecord) -> bool:
    """Leave out that pages were under way when a person ended the server."""
    is_of_a_page_that_was_ended = line.exc_info is not None and line.exc_info[0] is CancelledError
    is_of_their_number = str(line.msg).startswith("Cancel %s running task(s)")
    return not (is_of_a_page_that_was_ended or is_of_their_number)


def check_options(options: ViewOptions) -> str:
    """Check who would be able to read the pages."""
    if not options.root.is_dir():
        raise ConfigError(
            f"{options.root} is not a folder.\nNext: name the folder of the runs, such as runs/."
        )
    token = _token(options.token_env)
    if token and options.no_token:
        raise ConfigError("--no-token and --token-env contradict each other: leave one out.")
    if is_loopback(options.host):
        return token
    if not options.allow_remote:
        raise ConfigError(
            f"{options.host} can be reached by other machines, and runs hold attack texts.\n"
            "Next: leave --host away (an SSH tunnel brings the pages elsewhere), or say "
            "--allow-remote with --token-env."
        )
    if not token:
        raise ConfigError(
            f"{options.host} can be reached by other machines, so a token is needed.\n"
            f"Next: put {LEAST_TOKEN} or more characters into an environment variable and name "
            "it with --token-env."
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_names(options: ViewOptions, port: int) -> frozenset[str]:
    """Return every `Host` that a browser may name."""
    names = {options.host, "localhost", "127.0.0.1", "::1", *options.names}
    if options.host in _ANY:
        names |= {platform.node()}
    hosts = {_bracketed(name.lower()) for name in names if name and name not in _ANY}
    with_port = {f"{host}:{port}" for host in hosts}
    if port == _WEB:  # browsers leave this port out
        return frozenset(with_port | hosts)
    return frozenset(with_port)


def _token(variable: str) -> str:
    """Read the token from a variable; empty where none is named, and a weak one is refused."""
    if not variable:
        return ""
    token = os.environ.get(variable, "")
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"The environment variable {variable} holds no token of {LEAST_TOKEN} or more "
            "printable ASCII characters."
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    """Open the socket; an address that cannot be had is a mistake of configuration."""
    try:
        family = socket.AF_INET
        if ":" in host:
            family = socket.AF_INET6
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]
        raise ConfigError(
            f"Cannot listen on {host}:{port}: {reason}.\n"
            "Next: name another port with --port; 0 takes any free one."
        ) from error


def _bracketed(host: str) -> str:
    if ":" in host:
        return f"[{host}]"
    return host
