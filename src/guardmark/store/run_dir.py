"""The folder of a run: where its files lie, and who holds it."""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import StorageError, StoreError
from guardmark.core.values import dataclass
from guardmark.store.file_errors import errors_of_files
from guardmark.store.locks import try_lock
from guardmark.store.seals import LOG, RECORDS, SEALS
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterator


LOCK: Final = ".lock"
_ENDINGS: Final = (".sqlite", ".json", ".jsonl", ".yaml", ".html", ".md", ".csv", ".xml", ".log")
_MOST_OF_HOLDER: Final = 300


class _File:
    """A file of every run, as an attribute of its folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDir, kind: type[RunDir] | None = None) -> Path:
        """Return the path of the file."""
        return run.path / self._name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDir:
    """The folder of one run."""

    path: Path

    records = _File(RECORDS)  # the one source of everything else
    results = _File("results.jsonl")  # a line a record, without tries
    trace = _File("trace.jsonl")  # a line a try, without texts and times
    target = _File("target.jsonl")  # a line an answer of the target model to a try
    resolved_config = _File("config.resolved.yaml")  # every default filled in
    data_manifest = _File("data_manifest.json")  # what data was read
    environment = _File("environment.json")  # versions of everything that took part
    summary_json = _File("summary.json")
    summary_md = _File("summary.md")
    report_md = _File("report.md")
    report_html = _File("report.html")
    categories_csv = _File("categories.csv")
    variant_metrics_csv = _File("variant_metrics.csv")
    comparison_json = _File("comparison.json")
    slice_stability = _File("slice_stability.json")
    slice_stability_md = _File("slice_stability.md")
    junit = _File("junit.xml")
    sarif = _File("results.sarif")
    seals = _File(SEALS)  # hashes of what was written, a line each
    log = _File(LOG)

    def checked(self) -> RunDir:
        """Refuse a folder in which a link, a folder, a pipe or a device stands in place of a file.

        A folder from somebody else could have other files read, or overwritten, by such means.
        """
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                is_ours = not is_folder or entry.name.endswith(_ENDINGS)
                if entry.is_file(follow_symlinks=False) or not is_ours:
                    continue
                what = "a link" if entry.is_symlink() else "a pipe or a device"
                raise StoreError(
                    f"{self.path} holds {'a folder' if is_folder else what} in place of a file: "
                    f"{entry.name!a}.\nNext: ask where it comes from, and remove it."
                )
        return self

    def create(self) -> RunDir:
        """Make the folder if it is not there."""
        with errors_of_files(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        return self

    def file(self, name: str) -> Path:
        """Return the path of a file of the run."""
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} leads out of the run folder")
        return self.path / name

    def write_text(self, name: str, text: str) -> Path:
        """Write a file whole or not at all."""
        path = self.file(name)
        with whole_file(path) as file:
            file.write(text.encode(errors="backslashreplace"))  # as JSON spells half of a pair
        return path

    @contextmanager
    def lock(self, *, started: str = "") -> Iterator[None]:
        """Hold the folder against other runs while a block runs.

        The lock goes with the process, however it ends.
        """
        self.create().checked()
        with errors_of_files(self.path):
            file = os.fdopen(os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        with file:
            if not try_lock(file):
                raise StorageError(
                    f"{self.path} is in use by another run: {file.read(_MOST_OF_HOLDER)}.\n"
                    "Next: wait for it, stop it, or choose another output folder with -o."
                )
            with errors_of_files(self.path):
                file.truncate()
                since = f", since {started}" if started else ""
                file.write(f"process {os.getpid()} on {platform.node()}{since}")
                file.flush()
            _LAST_LOCKED[:] = [self.path]
            yield


_LAST_LOCKED: list[Path] = []


def last_locked() -> Path | None:
    """Return the run folder that this process held last: where its traceback is kept."""
    return _LAST_LOCKED[0] if _LAST_LOCKED else None


def is_held(folder: Path) -> bool:
    """Tell whether a process is writing into a run folder at this moment."""
    try:
        with (folder / LOCK).open("r+") as file:
            return not try_lock(file)
    except OSError:
        return False
