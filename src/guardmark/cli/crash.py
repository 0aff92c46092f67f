"""Says where this process ended, when native code of a part crashed or it was killed."""

from __future__ import annotations

import faulthandler
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

_LISTENER: Final = Path(__file__).with_name("crash.sh")


@contextmanager
def crash_listener() -> Iterator[None]:
    """Have a shell say where this process ended, if it ends within the block.

    No code of ours runs then: the shell reads what the signal handler of Python writes, and sees
    its input end.
    """
    shell = shutil.which("sh")
    if shell is None or faulthandler.is_enabled():  # then somebody else is told
        yield
        return
    command = [shell, str(_LISTENER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as listener:  # noqa: S603 - a script of ours
        pipe = cast("IO[bytes]", listener.stdin)
        faulthandler.enable(pipe, all_threads=False)
        try:
            yield
        finally:
            faulthandler.disable()
            pipe.write(b"done")
