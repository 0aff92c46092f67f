"""The runs below a folder, read once and again only where something changed, and lists of them."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from pydantic import TypeAdapter

from guardmark.analysis.defense.scorecard import complement
from guardmark.core.errors import GuardmarkError
from guardmark.core.estimate import Estimate
from guardmark.core.limits import MOST_SUMMARY_BYTES
from guardmark.core.manifest import UNNAMED, PartManifest
from guardmark.core.values import dataclass
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.core.manifest import RunManifest

_Point = tuple[float, float]
"""Attacks that get through, and false alarms, each as a share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRates:
    """What a run found out about one defense.

    Attributes:
        rewritten: What got through an adaptive attacker; None for none.
        cost: Of all its calls, in the currency of the price table.
        is_alike: Every answer was the same: its rates tell nothing.
    """

    name: str
    type: str = ""
    version: str = ""
    fingerprint: str = ""
    is_baseline: bool = False
    attack_success_rate: Estimate | None = None
    false_positive_rate: Estimate | None = None
    rewritten: Estimate | None = None
    cost: float | None = None
    is_alike: bool = False

    @property
    def errors(self) -> _Point | None:
        """Attacks that get through and false alarms, where both rates are known."""
        if self.attack_success_rate is None or self.false_positive_rate is None:
            return None
        through, alarms = self.attack_success_rate.value, self.false_positive_rate.value
        if through is None or alarms is None:
            return None
        return through, alarms

    @property
    def balanced_error(self) -> float | None:
        """The mean of both error rates, where both are known."""
        if self.errors is None:
            return None
        return sum(self.errors) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """One run of the list.

    Attributes:
        systems: Of each arm of a pipeline or of agents.
    """

    key: str
    folder: Path
    path: str
    state: str
    name: str = ""
    created_utc: str = ""
    planned: int = 0
    stored: int = 0
    attacks: int = 0
    benign: int = 0
    data: tuple[str, ...] = ()
    data_sha256: str = ""
    defenses: tuple[ListedRates, ...] = ()
    systems: tuple[ListedRates, ...] = ()
    gate: str = ""
    fault: str = ""

    @property
    def title(self) -> str:
        """What the run was called, else its folder."""
        return self.name or self.path

    @property
    def folder_beside(self) -> str:
        """The folder, where the title does not name it already."""
        if self.name:
            return self.path
        return ""

    @property
    def candidates(self) -> tuple[ListedRates, ...]:
        """Systems, else the defenses under test, else the baselines."""
        tested = tuple(each for each in self.defenses if not each.is_baseline)
        return by_merit(self.systems or tested or self.defenses)

    @property
    def ranked(self) -> tuple[ListedRates, ...]:
        """Every defense, the best first, baselines last."""
        return by_merit(self.defenses)

    def shares_defense(self, other: RunEntry) -> bool:
        """Tell whether one defense stands in both runs, so that answers can be held together."""
        names = {each.name for each in other.defenses}
        return any(each.name in names for each in self.defenses)

    @property
    def is_attacked(self) -> bool:
        """Whether an adaptive attacker was let at some defense."""
        return any(each.rewritten is not None for each in self.defenses)


def by_merit(rates: Sequence[ListedRates]) -> tuple[ListedRates, ...]:
    """Sort as reports do: undercut by none on both sides, then by balanced error."""
    points: dict[str, _Point] = {}
    for each in rates:
        if not each.is_baseline and each.errors is not None:
            points[each.name] = each.errors

    def key(each: ListedRates) -> tuple[bool, bool, float]:
        error = each.balanced_error
        if error is None:
            error = math.inf
        own = points.get(each.name)
        is_undercut = own is not None and _is_undercut(own, points.values())
        return each.is_baseline, is_undercut, error

    return tuple(sorted(rates, key=key))


def _is_undercut(own: _Point, others: Iterable[_Point]) -> bool:
    """Tell whether another has no more errors of either kind, and fewer of one."""
    for through, alarms in others:
        if (through, alarms) != own and through <= own[0] and alarms <= own[1]:
            return True
    return False


def read_entry(key: str, folder: Path, path: str) -> RunEntry:
    """Read what a list shows of one run."""
    run = RunDir(path=folder)
    try:
        with RecordReader(run.checked().records) as reader:
            status, manifest = reader.status(), reader.manifest()
            arms = reader.defenses()
    except GuardmarkError as error:
        return RunEntry(key=key, folder=folder, path=path, state="damaged", fault=str(error))
    rates = _summary_rates(run.summary_json, manifest, status.stored)
    name = manifest.name
    if name == UNNAMED:
        name = ""
    return RunEntry(
        key=key,
        folder=folder,
        path=path,
        state=status.state.value,
        name=name,
        created_utc=manifest.created_utc,
        planned=status.planned,
        stored=status.stored,
        attacks=sum(data.attacks for data in manifest.data),
        benign=sum(data.benign for data in manifest.data),
        data=tuple(data.name for data in manifest.data),
        data_sha256=manifest.data_sha256,
        gate=_gate(run.file("gate.json")),
        defenses=rates.get("defenses") or _names_only(manifest, arms),
        systems=rates.get("systems", ()),
    )


def _names_only(manifest: RunManifest, arms: tuple[str, ...]) -> tuple[ListedRates, ...]:
    """Return the defenses without rates, as the manifest and the records name them."""
    parts = {part.name: part for part in manifest.parts if part.kind == "defense"}
    for arm in arms:
        if arm not in parts:
            parts[arm] = PartManifest(name=arm, kind="", type="")
    listed = []
    for part in parts.values():
        rates = ListedRates(
            name=part.name,
            type=part.type,
            version=part.version,
            fingerprint=part.fingerprint,
            is_baseline=part.is_baseline,
        )
        listed.append(rates)
    return tuple(listed)


def _document(path: Path) -> Any:
    if path.is_symlink() or path.stat().st_size > MOST_SUMMARY_BYTES:
        raise ValueError(f"{path} is not a file of ours")
    return json.loads(path.read_bytes())


_STANDINGS: Final = {"held": "passed", "broken": "failed", "open": "undecided"}
_UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, RecursionError)


def _gate(path: Path) -> str:
    """Read how the limits of the run's own configuration stand; empty where it sets none."""
    try:
        return _STANDINGS[_document(path)["standing"]]
    except _UNREADABLE:
        return ""


def _summary_rates(
    path: Path, manifest: RunManifest, stored: int
) -> dict[str, tuple[ListedRates, ...]]:
    """Read rates from the summary, if it is of this run as it stands now."""
    try:
        summary = _document(path)
        run, pipeline = summary["run"], summary.get("pipeline") or {}
        if run["config_sha256"] != manifest.config_sha256 or run["stored"] != stored:
            return {}
        systems = []
        for arm in pipeline.get("arms", ()):
            if arm.get("system"):
                systems.append(_system_rates(arm["name"], arm["system"]))
        agent = summary.get("agent") or {}
        systems += map(_agent_rates, agent.get("arms", ()))
        defenses = [_rates(each, summary) for each in summary["defenses"]]
        return {"defenses": tuple(defenses), "systems": tuple(systems)}
    except _UNREADABLE:
        return {}


def _agent_rates(arm: Any) -> ListedRates:
    """Return attacks that succeed and benign tasks that are not done, of an arm of an agent."""
    return ListedRates(
        name=f"{arm['arm']} with {arm['agent']}",
        type="agent",
        attack_success_rate=_estimate(arm["attack_success"]),
        false_positive_rate=complement(_estimate(arm["utility"])),
    )


def _system_rates(guard: str, system: Any) -> ListedRates:
    return ListedRates(
        name=str(guard),
        type="system",
        attack_success_rate=_estimate(system["attack_success_rate"]),
        false_positive_rate=_estimate(system["over_refusal_rate"]),
    )


def _rates(defense: Any, summary: Any) -> ListedRates:
    """Read the rates of one defense from a summary; what is missing raises."""
    name = str(defense["name"])
    attacked = [each for each in summary.get("adaptive") or () if each["defense"] == name]
    rewritten = None
    if attacked:
        rewritten = _estimate(attacked[0]["rounds"][-1]["full"])
    cost = None
    for spent in summary.get("spending") or ():
        if spent["part"] == name and spent.get("cost") is not None:
            cost = (cost or 0.0) + float(spent["cost"])
    return ListedRates(
        name=name,
        type=str(defense["type"]),
        version=str(defense["version"]),
        fingerprint=str(defense["fingerprint"]),
        is_baseline=defense["is_baseline"] is True,
        attack_success_rate=_estimate(defense["rates"]["attack_success_rate"]),
        false_positive_rate=_estimate(defense["rates"]["false_positive_rate"]),
        rewritten=rewritten,
        cost=cost,
        is_alike=any(each["defense"] == name for each in summary.get("alike") or ()),
    )


def _estimate(rate: Any) -> Estimate:
    estimate = TypeAdapter(Estimate).validate_python(rate)
    for share in (estimate.low, estimate.high, estimate.group_mean):
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"{share} is not a share")
    return estimate


_RECORDS: Final = "records.sqlite"
_WATCHED: Final = (_RECORDS, f"{_RECORDS}-wal", "summary.json", "gate.json", ".lock")
_DEPTH: Final = 3
_KEY: Final = 16

_Stamp = tuple[tuple[int, int], ...]


class RunIndex:
    """Knows the runs below a folder, links not followed; may be asked from several threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = Lock()
        self._known: dict[str, tuple[_Stamp, RunEntry]] = {}

    def entries(self) -> tuple[RunEntry, ...]:
        """Return all runs, newest first; what changed is read anew."""
        with self._lock:
            known: dict[str, tuple[_Stamp, RunEntry]] = {}
            for folder in _runs_below(self._root, _DEPTH):
                path = str(folder.relative_to(self._root))
                key = sha256(os.fsencode(path)).hexdigest()[:_KEY]
                known[key] = self._entry(key, folder, path)
            self._known = known
        entries = [entry for _, entry in known.values()]
        return tuple(sorted(entries, key=lambda each: (each.created_utc, each.path), reverse=True))

    def find(self, key: str) -> RunEntry | None:
        """Return one run, read anew if it changed."""
        with self._lock:
            before = self._known.get(key)
            if before is None:
                return None
            folder, path = before[1].folder, before[1].path
            if not (folder / _RECORDS).is_file():
                del self._known[key]
                return None
            self._known[key] = self._entry(key, folder, path)
            return self._known[key][1]

    def stamp(self, key: str) -> _Stamp:
        """Return what changes when the files of a run do; empty for unknown runs."""
        with self._lock:
            before = self._known.get(key)
        if before is None:
            return ()
        return _stamp(before[1].folder)

    def _entry(self, key: str, folder: Path, path: str) -> tuple[_Stamp, RunEntry]:
        stamp = _stamp(folder)
        before = self._known.get(key)
        # A process that dies leaves no mark on its files, so a running one is always read.
        if before and before[0] == stamp and before[1].state != RunState.RUNNING.value:
            return before
        return stamp, read_entry(key, folder, path)


def _stamp(folder: Path) -> _Stamp:
    """Return times and sizes of the files that a list reads."""
    stamps = dict.fromkeys(_WATCHED, (0, 0))
    for name in _WATCHED:
        with suppress(OSError):
            stat = os.lstat(folder / name)
            if stat.st_size:  # reading alone may make an empty log appear
                stamps[name] = (stat.st_mtime_ns, stat.st_size)
    return tuple(stamps.values())


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield folders that hold records, no deeper than that; hidden folders are left out."""
    try:
        with os.scandir(folder) as listing:
            below = sorted(listing, key=lambda each: each.name)
    except OSError:
        return
    if any(each.name == _RECORDS and each.is_file(follow_symlinks=False) for each in below):
        yield folder
        return
    if depth:
        for each in below:
            if each.is_dir(follow_symlinks=False) and not each.name.startswith("."):
                yield from _runs_below(Path(each.path), depth - 1)


PAGE: Final = 50  # runs on one page of the list


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are wanted."""

    words: str = ""
    state: str = ""
    defense: str = ""

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.words.strip() or self.state or self.defense)

    def query(self, number: int) -> str:
        """Return the query that shows a page of these runs."""
        stated = {key: value for key, value in asdict(self).items() if value}
        return urlencode({**stated, "page": number}, errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    """One page of the list."""

    runs: tuple[RunEntry, ...]
    total: int
    known: int
    number: int
    pages: int
    states: tuple[str, ...]
    defenses: tuple[str, ...]

    @property
    def is_attacked(self) -> bool:
        """Whether an adaptive attacker was let at a defense that is shown."""
        return any(each.rewritten is not None for each in self._candidates())

    @property
    def is_paid(self) -> bool:
        """Whether the calls of a defense that is shown have a price."""
        return any(each.cost is not None for each in self._candidates())

    def _candidates(self) -> Iterator[ListedRates]:
        for run in self.runs:
            yield from run.candidates


def list_runs(entries: Sequence[RunEntry], wanted: RunFilter, *, number: int = 1) -> RunListing:
    """Choose the runs of one page."""
    words = wanted.words.casefold().split()
    wanted_runs = [entry for entry in entries if _passes(entry, wanted, words)]
    pages = max(1, -(-len(wanted_runs) // PAGE))
    shown = min(max(1, number), pages)
    states, defenses = set[str](), set[str]()
    for entry in entries:
        states.add(entry.state)
        defenses.update(each.name for each in entry.defenses)
    return RunListing(
        runs=tuple(wanted_runs[(shown - 1) * PAGE : shown * PAGE]),
        total=len(wanted_runs),
        known=len(entries),
        number=shown,
        pages=pages,
        states=tuple(sorted(states)),
        defenses=tuple(sorted(defenses)),
    )


def _passes(entry: RunEntry, wanted: RunFilter, words: list[str]) -> bool:
    """Tell whether a run fits what is asked for: all words, state and defense."""
    names = [each.name for each in entry.defenses]
    held = " ".join((entry.name, entry.path, *entry.data, *names)).casefold()
    return (
        wanted.state in {"", entry.state}
        and wanted.defense in {"", *names}
        and all(word in held for word in words)
    )
