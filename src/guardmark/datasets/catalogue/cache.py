"""Files of public data sets on this machine: fetched from their home, or copied from a folder.

A set lies in the cache whole or not at all: files are written into a folder of their own, checked,
and only then put into their place.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from guardmark.core.errors import ConfigError, DatasetError, ServiceError, listed, needs
from guardmark.core.values import dataclass
from guardmark.datasets.catalogue.settings import CatalogueEntry, SourceFile
from guardmark.datasets.loading import file_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Check = Callable[[Mapping[str, Path]], object]

_RAW: Final = "https://raw.githubusercontent.com/{}/{}/{}"
_HUB: Final = "hub:"
_RECEIPT: Final = "receipt.json"
_TIMEOUT_S: Final = 60
_DATA: Final = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv", ".json")
_SHOWN: Final = 9  # files of a repository that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSet:
    """A data set that lies in the cache: its revision, and its files by their paths at home.

    Attributes:
        revision: The revision that was fetched.
        files: The path of each file at home to where it lies here.
    """

    revision: str
    files: Mapping[str, Path]


def _place(name: str, revision: str) -> Path:
    """Return where a set is kept: below $GUARDMARK_DATA, or in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    root = os.environ.get("GUARDMARK_DATA", "").strip() or f"{base}/guardmark/data"
    words = (quote(word, safe="").replace(".", "%2E") for word in (name, revision or "latest"))
    return Path(root, *words).expanduser()


def stored(name: str, revision: str) -> StoredSet | None:
    """Return a data set of the cache, or None where it was not fetched yet."""
    cache = _place(name, revision)
    try:
        receipt = json.loads((cache / _RECEIPT).read_text(encoding="utf-8"))
        files = {path: cache / path for path in receipt["files"]}
        return StoredSet(revision=receipt["revision"], files=files)
    except (OSError, ValueError, KeyError):
        return None


def home_page(home: str) -> str:
    """Return the page on which a person reads about a data set."""
    kind, _, rest = home.partition(":")
    if kind == "github":
        return f"https://github.com/{rest}"
    if kind == "hub":
        return f"https://huggingface.co/datasets/{rest}"
    return home


def hub_entry(repository: str, revision: str, files: Iterable[str]) -> CatalogueEntry:
    """Return files of a repository of the hub as an entry; nothing else is known of them."""
    sources = tuple(SourceFile(path=path) for path in files)
    known: dict[str, Any] = {"revision": revision, "licence": "", "unread": "", "files": sources}
    return CatalogueEntry.model_construct(home=f"{_HUB}{repository}", **known)


def local_files(name: str, entry: CatalogueEntry, folder: Path) -> dict[str, Path]:
    """Find the files of an entry in a folder that a person named, or raise what is missing.

    A file is known by its path at home, by that path with `__` for each `/`, or by its bare name
    where that is unmistakable: one file of the entry has it, or it has the right checksum.
    """
    files: dict[str, Path] = {}
    for file in entry.files:
        there = _candidates(file, entry, folder)
        right = there
        if file.sha256:
            right = [path for path in there if file_sha256(path) == file.sha256]
        if "*" in file.path:
            for path in there:
                files[str(Path(file.path).parent / path.name)] = path
        elif len(right) == 1 or (right and file.sha256):
            files[file.path] = right[0]
        elif right:
            raise DatasetError(
                f"{len(right)} files under {folder} may be {file.path} of {name}.\n"
                "Name the folder that holds one of them."
            )
        elif there:
            raise _wrong_checksum(name, file, file_sha256(there[0]))
        elif not file.optional:  # half of a set would pass for the whole
            files.clear()
            break
    if not any(fnmatch(path, file.path) for path in files for file in entry.row_files):
        needed = listed(file.path for file in entry.files if not file.optional) or "any of them"
        raise DatasetError(f"{folder} does not hold the files of {name}.\nIt needs: {needed}.")
    return files


def _candidates(file: SourceFile, entry: CatalogueEntry, folder: Path) -> list[Path]:
    """Find the files of a folder that may be a file of an entry."""
    steps = file.path.split("/")
    if folder.is_file():
        if fnmatch(folder.name, steps[-1]):
            return [folder]
        return []
    whole = folder / file.path
    if whole.is_file():
        return [whole]
    names = ["__".join(steps[start:]) for start in range(len(steps))]
    alike = {other.path for other in entry.files if other.path.split("/")[-1] == steps[-1]}
    if len(alike) > 1 and not file.sha256:
        names.remove(steps[-1])
    for name in names:
        paths = sorted(path for path in folder.rglob(name) if path.is_file())
        if paths:
            return paths
    return []


def _wrong_checksum(name: str, file: SourceFile, came: str) -> DatasetError:
    """Say that a file is not the one that an entry describes."""
    return DatasetError(
        f"{file.path} of {name} is not the file that the entry describes.\n"
        f"Expected SHA-256 {file.sha256[:16]}..., came {came[:16]}...; nothing was stored.\n"
        "Fetch it again, or read it as another version: path: and a map: of your own."
    )


def store_copies(name: str, entry: CatalogueEntry, folder: Path, check: Check) -> None:
    """Copy the files of an entry out of a folder into the cache."""
    files = local_files(name, entry, folder)
    with _new(_place(name, entry.revision)) as new:
        for path, source in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, new / path)
        _keep(new, name, entry, files, check=check)


def fetch(name: str, entry: CatalogueEntry, check: Check, announce: Callable[[str], None]) -> None:
    """Fetch the files of an entry from its home into the cache; the licence is told before."""
    if entry.unread:
        raise ConfigError(f"{name} has no rows to fetch.\n{entry.unread}")
    wanted: Iterable[tuple[SourceFile, str]] = [(file, file.path) for file in entry.files]
    commit, licence = entry.revision, entry.licence
    has_pattern = any("*" in file.path for file in entry.files)
    if entry.home.startswith(_HUB) and (has_pattern or not licence):
        repository = entry.home.removeprefix(_HUB)
        with _hub_errors(name, entry, "its list of files"):
            info = _hub().HfApi().dataset_info(repository, revision=commit or None)
        commit = str(info.sha)
        if not licence:
            licence = str(info.card_data.get("license"))
        wanted = _chosen(name, entry, [sibling.rfilename for sibling in info.siblings])
    announce(f"Fetching {name} from {home_page(entry.home)}. Licence: {licence or 'not stated'}.")
    with _new(_place(name, entry.revision)) as new:
        paths = {}
        for file, path in wanted:
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            if entry.home.startswith(_HUB):
                _download_from_hub(name, entry, path, commit=commit, folder=new)
            else:
                _download(name, entry, path, new / path)
            paths[path] = file_sha256(new / path)
            if file.sha256 and paths[path] != file.sha256:
                raise _wrong_checksum(name, file, paths[path])
        known = entry.model_copy(update={"licence": licence})
        _keep(new, name, known, paths, check=check, commit=commit)


def _chosen(name: str, entry: CatalogueEntry, there: list[str]) -> list[tuple[SourceFile, str]]:
    """Choose among the files of a repository by the patterns of an entry."""
    data = sorted(path for path in there if path.removesuffix(".gz").endswith(_DATA))
    chosen: list[tuple[SourceFile, str]] = []
    kinds: set[str] = set()
    for file in entry.files:
        for path in data:
            if fnmatch(path, file.path):
                chosen.append((file, path))
                kinds.add(Path(path.removesuffix(".gz")).suffix)
    if len(kinds) != 1:
        patterns = listed(file.path for file in entry.files)
        files = listed(data[:_SHOWN]) or "none"
        if len(data) > _SHOWN:
            files += " and more"
        raise ConfigError(
            f"{name}: {len(chosen) or 'no'} files fit {patterns}.\n"
            "Name them: path: (a pattern), or another split: and subset:.\n"
            f"Its data files: {files}."
        )
    return chosen


def _keep(
    new: Path,
    name: str,
    entry: CatalogueEntry,
    paths: Iterable[str],
    *,
    check: Check,
    commit: str = "",
) -> None:
    """Check what lies in a new folder and put it into its place."""
    check({path: new / path for path in paths})
    receipt = {
        "name": name,
        "home": entry.home,
        "revision": commit or entry.revision,
        "licence": entry.licence,
        "files": {path: file_sha256(new / path) for path in paths},
    }
    text = json.dumps(receipt, indent=2, ensure_ascii=False)
    (new / _RECEIPT).write_text(text + "\n", encoding="utf-8")
    cache = _place(name, entry.revision)
    if cache.exists():
        shutil.rmtree(cache)
    new.rename(cache)


@contextmanager
def _new(cache: Path) -> Iterator[Path]:
    """Give a folder beside a place of the cache, which is gone afterwards unless it was moved."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        new = Path(mkdtemp(prefix=".new-", dir=cache.parent))
    except OSError as error:
        raise DatasetError(
            f"The cache {cache.parent} cannot be written: {error.strerror}.\n"
            "Name another folder: export GUARDMARK_DATA=FOLDER."
        ) from error
    try:
        yield new
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _download(name: str, entry: CatalogueEntry, path: str, target: Path) -> None:
    """Write what an address holds into a file, a piece at a time."""
    from http.client import HTTPException  # on use: a plain run fetches nothing
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    url = f"{entry.home.rstrip('/')}/{quote(path)}"
    if entry.home.startswith("github:"):
        url = _RAW.format(entry.home.removeprefix("github:"), entry.revision or "HEAD", quote(path))
    try:
        request = Request(url, headers={"User-Agent": "guardmark"})  # noqa: S310 - entries allow https, and http on loopback
        with urlopen(request, timeout=_TIMEOUT_S) as answer, target.open("wb") as out:  # noqa: S310 - as above
            shutil.copyfileobj(answer, out, 1 << 20)
            stated = answer.headers.get("Content-Length")
    except HTTPError as error:
        error.close()
        raise _refused(name, entry, path, error.code) from error
    except (HTTPException, OSError) as error:
        raise _unreachable(name, str(getattr(error, "reason", error))) from error
    if stated is not None and target.stat().st_size != int(stated):
        raise _unreachable(name, f"{path} broke off early")


def _unreachable(name: str, reason: str) -> ServiceError:
    """Say that a home gave nothing."""
    return ServiceError(
        f"{name} cannot be fetched: {reason}.\nNothing was stored. "
        "Try again, or name a local copy (--from PATH, or from: in a configuration)."
    )


def _refused(name: str, entry: CatalogueEntry, what: str, status: int | None) -> ServiceError:
    """Say why a home did not give a file, and what to do."""
    if status in {401, 403}:
        return ServiceError(
            f"{name} is gated: its source refuses {what} without a token (HTTP {status}).\n"
            f"1. Accept its terms: {home_page(entry.home)}\n"
            "2. export HF_TOKEN=... (a token that may read)\n"
            "3. Fetch it again; nothing was stored."
        )
    gone = "was not given"
    if status in {404, 410}:
        gone = "is no longer at its source"
    return ServiceError(
        f"{name}: {what} {gone} (HTTP {status or 'unknown'}).\n"
        f"Nothing was stored. See whether it moved: {home_page(entry.home)}\n"
        "Then read a local copy with --from PATH, or another revision with --revision."
    )


def _hub() -> Any:
    """Load the library of the hub, where it is installed."""
    with needs("Reading from the hub needs huggingface_hub", "hub"):
        import huggingface_hub
        import huggingface_hub.errors
    return huggingface_hub


@contextmanager
def _hub_errors(name: str, entry: CatalogueEntry, what: str) -> Iterator[None]:
    """Turn what the library of the hub raises into what a person can act on."""
    errors = _hub().errors
    try:
        yield
    except errors.HfHubHTTPError as error:
        gated = isinstance(error, errors.GatedRepoError)
        status = getattr(getattr(error, "response", None), "status_code", None)
        raise _refused(name, entry, what, 403 if gated else status) from error
    except (errors.HFValidationError, errors.HTTPError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise _unreachable(name, lines[0].rstrip(".")) from error


def _download_from_hub(
    name: str, entry: CatalogueEntry, path: str, *, commit: str, folder: Path
) -> None:
    """Fetch one file of a hub into a folder."""
    with _hub_errors(name, entry, path):
        _hub().hf_hub_download(
            entry.home.removeprefix(_HUB),
            path,
            repo_type="dataset",
            revision=commit or None,
            local_dir=folder,
        )
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's notes on the download
