"""A folder of stored runs of agents, read: whose each file is, and what had to be left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError, GuardmarkError, counted, listed
from guardmark.interchange.imported import bytes_of, object_of, objects_of, word
from guardmark.interchange.stored_runs.agentdojo import is_agentdojo, read_agentdojo
from guardmark.interchange.stored_runs.inspect import is_inspect, read_inspect_runs
from guardmark.interchange.stored_runs.own import read_own_cases
from guardmark.interchange.stored_runs.traces import kind_of_trace, read_traces
from guardmark.interchange.stored_runs.turns import Unusable
from guardmark.store.run_dir import RunDir
from guardmark.suites.stored import StoredRuns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.interchange.imported import Object
    from guardmark.suites.stored import StoredCase

_ENDINGS: Final = (".json", ".jsonl", ".eval")
_NEXT: Final = (
    "Next: name a folder of AgentDojo (--logdir), logs of Inspect, traces, or a run of guardmark."
)
_MOST_NAMED: Final = 3


@dataclass(slots=True, kw_only=True)
class _Folder:
    """A folder under way: what was left out, and the hash of what was read."""

    path: Path
    unusable: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    pipelines: set[str] = field(default_factory=set)
    digest: list[str] = field(default_factory=list)

    def leave_out(self, why: Unusable) -> None:
        """Count a run that cannot be put before guards."""
        self.unusable[str(why)] += 1

    def cases(self) -> Iterator[StoredCase]:
        """Yield the runs of every file, in the order of their names."""
        home, files = self.path.parent, [self.path]
        if self.path.is_dir():
            home = self.path
            files = [each for each in sorted(home.rglob("*")) if each.suffix in _ENDINGS]
        for file in files:
            name = file.relative_to(home).as_posix()
            try:
                data = bytes_of(file, hint=_NEXT)
                cases = list(self._cases_of(file, data))
            except GuardmarkError as error:
                self.unread.append(f"{name}: {str(error).splitlines()[0].rstrip('.')}")
                continue
            self.digest.append(f"{name} {sha256(data).hexdigest()}")
            yield from cases

    def _cases_of(self, file: Path, data: bytes) -> Iterator[StoredCase]:
        if file.suffix == ".eval":
            yield from read_inspect_runs(data, file, self.leave_out, self.notes.append)
            return
        first = self._first_object(file, data)
        kind = kind_of_trace(first)
        if kind:
            yield from read_traces(file, kind, self.leave_out, self.notes.append)
        elif is_inspect(first):
            yield from read_inspect_runs(data, file, self.leave_out, self.notes.append)
        elif is_agentdojo(first):
            try:
                case = read_agentdojo(first)
            except Unusable as why:
                self.leave_out(why)
            else:
                self.pipelines.add(word(first, "pipeline_name"))
                yield case
        else:
            raise DatasetError("The file is no stored run of an agent.")

    def _first_object(self, file: Path, data: bytes) -> Object:
        if file.suffix != ".jsonl":
            return object_of(data, file.name)
        return next((row for _, row in objects_of(data, file, [])), {})

    def told(self) -> Iterator[str]:
        """Say what was left out and why."""
        for why, count in self.unusable.items():
            were = "was" if count == 1 else "were"
            yield f"{counted(count, 'stored run')} {why} {were} left out"
        if self.unread:
            shown = "; ".join(self.unread[:_MOST_NAMED])
            more = len(self.unread) - _MOST_NAMED
            yield (
                f"{counted(len(self.unread), 'file')} could not be read as a stored run: {shown}"
                + (f"; and {more} more" if more > 0 else "")
            )
        yield from self.notes


def read_stored_runs(path: Path) -> StoredRuns:
    """Read stored runs of agents, whichever tool wrote them; no code of theirs is loaded.

    Raises:
        DatasetError: If there is no stored run, or if runs of several pipelines lie together.
    """
    if not path.exists():
        raise DatasetError(f"There is no folder {path}.\n{_NEXT}")
    folder = _Folder(path=path)
    if (path / "records.sqlite").exists():
        own = RunDir(path=path).checked()
        cases = list(read_own_cases(own, folder.leave_out))
        folder.digest += [repr(case).encode("utf-8", "replace").hex() for case in cases]
    else:
        cases = list(folder.cases())
    notes = (*folder.told(), *_later_words(cases))
    if not cases:
        told = "".join(f"{note}.\n" for note in notes[:2])
        raise DatasetError(f"{path} holds no stored run of an agent with calls.\n{told}{_NEXT}")
    if len(folder.pipelines) > 1:
        raise DatasetError(
            f"{path} holds runs of {len(folder.pipelines)} pipelines: {listed(folder.pipelines)}.\n"
            "Next: name the folder of one of them."
        )
    return StoredRuns(
        cases=tuple(_numbered(cases)),
        notes=notes,
        fingerprint=sha256("\n".join(folder.digest).encode()).hexdigest(),
    )


def _later_words(cases: list[StoredCase]) -> Iterator[str]:
    """Say that users spoke again in some runs, which guards of conversations do not see."""
    count = sum(1 for case in cases if case.later_words)
    if count:
        yield (
            f"In {counted(count, 'stored run')} the user spoke again: guards are shown the first "
            "words alone"
        )


def _numbered(cases: list[StoredCase]) -> Iterator[StoredCase]:
    """Tell stored runs of the same case apart by their number."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.id.text] += 1
        number = seen[case.id.text]
        if number == 1:
            yield case
        else:
            own = "-".join(filter(None, (case.id.copy, str(number))))
            yield replace(case, id=replace(case.id, copy=own))
