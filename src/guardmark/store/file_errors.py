"""What the system says of a file that cannot be written, in words of ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from guardmark.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def errors_of_files(path: Path) -> Iterator[None]:
    """Word what the system says of a file that cannot be written."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(
            f"{path} cannot be written: a file stands where a folder is needed.\n"
            "Next: name another folder with -o."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}.\n"
            "Next: free disk space or make the folder writable, or choose another with -o."
        ) from error
