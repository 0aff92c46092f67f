"""What is attacked: the configuration of a finished run, its defenses, the model they protect."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark.adaptive.comprehension import COMPREHENSION_VERSION, LEAST_OVERLAP, WORDS_IN_A_ROW
from guardmark.adaptive.target import KnownAnswers, ProtectedTarget
from guardmark.app.adapt.attacker import is_configuration
from guardmark.app.parts.building import INERT
from guardmark.app.parts.loading import (
    HELPERS,
    load_config,
    load_data,
    parse_config,
    part_settings,
    resolved,
)
from guardmark.app.results.opened_run import run_config
from guardmark.app.verify.data_files import check_data
from guardmark.app.verify.mismatches import Mismatches
from guardmark.core.errors import ConfigError, IncomparableRuns, StoreError
from guardmark.core.manifest import BASELINE_ROLE, BASELINE_TYPES
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.engine.plan import layer_of
from guardmark.reports.chapters.adaptive.chapter import sight_text
from guardmark.store import integrity
from guardmark.store.codec import answer_of
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.manifest import PartManifest, RunManifest
    from guardmark.core.outcome import Response, Verdict
    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import BuiltPart, Parts


_REMARKS: Final = {
    "target": "Python code that is imported and run",
    "variables": "environment variable that is read and passed on",
    **dict.fromkeys(("command", "interpreter"), "program that is run, with its arguments"),
    "env": "environment variable that is read and sent, or environment whose Python is run",
    **dict.fromkeys(("url", "base_url", "preset"), "address that is called"),
    **dict.fromkeys(("path", "weights", "patterns", "keywords"), "file or folder that is read"),
}
_LISTED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustList:
    """Everything that the parts a folder names would reach, a line each."""

    folder: Path
    lines: tuple[str, ...]

    @property
    def digest(self) -> str:
        """What a list that was read once is accepted by later."""
        return f"sha256:{sha256(chr(10).join(self.lines).encode()).hexdigest()}"


def require_untouched(folder: RunDir, *folders: Path) -> None:
    """Refuse a run whose records or data are not what was written, before anything is imported."""
    damage = list(integrity.check(folder.records))
    mismatches = Mismatches()
    if not damage:
        with RecordReader(folder.records) as reader:
            check_data(reader, [*folders, folder.path], mismatches)
        damage = [
            f"{each.file} is not what the run read ({each.place})." for each in mismatches.listed
        ]
    if damage:
        raise StoreError(
            f"{folder.path} is not what was measured: {damage[0]}\n"
            f"Next: see everything that changed with guardmark verify {folder.path}; then run anew."
        )


def subject_config(
    folder: RunDir,
    manifest: RunManifest,
    *,
    own: Path | None,
    trust: Callable[[TrustList], bool] | None,
) -> LoadedConfig:
    """Return the configuration to attack a finished run with; nothing of it is built yet."""
    loaded = _own_config(manifest, own)
    if loaded is None:
        loaded = _stored_config(folder, manifest, has_attacker=own is not None, trust=trust)
    run = loaded.config.run.model_copy(update={"seed": manifest.seed})
    return replace(loaded, config=loaded.config.model_copy(update={"run": run}))


def _own_config(manifest: RunManifest, path: Path | None) -> LoadedConfig | None:
    """Read a configuration that names defenses of the run; others hold an attacker only."""
    if path is None or not is_configuration(path):
        return None
    loaded = load_config(path)
    measured = {part.name for part in manifest.parts if part.kind == "defense"}
    if measured & loaded.config.defenses.keys():
        return loaded
    return None


def _stored_config(
    folder: RunDir,
    manifest: RunManifest,
    *,
    has_attacker: bool,
    trust: Callable[[TrustList], bool] | None,
) -> LoadedConfig:
    """Take the settings of the folder where they reach nothing, or the user agreed to the list."""
    document = resolved(run_config(manifest))
    if has_attacker and document["adaptive"]:
        document["adaptive"].update(dict.fromkeys(HELPERS))
    listed = _reach(folder, document)
    if not listed.lines:
        # They serve parts that call; another's certificates must not serve those of one's own.
        document |= {"services": {}, "prices": {}}
        document["run"]["uvloop"] = False
    elif trust is None:
        names = list(dict.fromkeys(".".join(line.split(".")[:2]) for line in listed.lines))
        named = ", ".join(names[:_LISTED])
        if len(names) > _LISTED:
            named += " ..."
        raise ConfigError(
            f"{folder.path} names parts that run code, call addresses or read files: {named}.\n"
            "They are not built because a folder says so.\n"
            "Next: name your own configuration of the run, --config CONFIG (with a file of an "
            "attacker: adapt CONFIG -o RUN --config FILE);\n"
            "or see everything that the folder names and agree to it: --trust."
        )
    elif not trust(listed):
        raise ConfigError(f"Nothing was built: you did not agree to what {folder.path} names.")
    import yaml

    text, shown_as = yaml.safe_dump(document), str(folder.path)
    loaded = parse_config(text, folder=Path.cwd(), shown_as=shown_as)
    return replace(loaded, is_foreign=not listed.lines)


def _reach(folder: RunDir, document: dict[str, Any]) -> TrustList:
    """List every text in the settings of parts that are not inert; nothing is imported."""
    lines = [
        line
        for kind, path, settings in part_settings(document)
        if not _is_inert(kind, settings)
        for line in _texts(".".join(path), settings)
    ]
    if lines:
        lines += _texts("services", document["services"])
    return TrustList(folder=folder.path, lines=tuple(lines))


def _is_inert(kind: str, settings: Mapping[str, Any]) -> bool:
    files = INERT.get(kind, {}).get(str(settings.get("type")))
    if files is None or any(isinstance(settings.get(name), str) for name in files):
        return False
    if "timeout_s" in settings:  # stored where it is not the usual one: it could be a day
        return False
    members = settings.get("judges", [])
    return isinstance(members, list) and all(
        isinstance(each, dict) and _is_inert(kind, each) for each in members
    )


def _texts(path: str, value: object, *, key: str = "") -> Iterator[str]:
    """Say each text of a setting with its place, in letters that every terminal shows."""
    if isinstance(value, dict):
        for name, below in value.items():
            shown = json.dumps(str(name))[1:-1].replace(" ", "\\u0020")
            yield from _texts(f"{path}.{shown}", below, key=str(name))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(f"{path}.{index}", below, key=key)
    elif isinstance(value, str):
        remark = _REMARKS.get(key) or ("file that is read" if key.endswith("_file") else "")
        yield f"{path} {json.dumps(value)}{f'  ({remark})' if remark else ''}"


def require_same(parts: Parts, manifest: RunManifest, *, shown_as: str) -> None:
    """Refuse parts that are not, to the byte of their files, those of the run."""
    now = {(part.kind, part.name): part for part in parts.manifests}
    faults = []
    for before in manifest.parts:
        after = now.pop((before.kind, before.name), None)
        fault = _fault(before, after)
        if fault:
            faults.append(fault)
    faults += [f"{kind} {name!r} is not of the run" for kind, name in now]
    if faults:
        more = ""
        if len(faults) > _LISTED:
            more = f"; and {len(faults) - _LISTED} more"
        raise IncomparableRuns(
            f"{shown_as} is not what the run {manifest.name!r} measured: "
            f"{'; '.join(faults[:_LISTED])}{more}.\n"
            "Next: name the configuration the run was made with, or run anew, then adapt."
        )


def _fault(before: PartManifest, now: PartManifest | None) -> str:
    """Say in what a part is another one than that of the run."""
    if now is None:
        return f"{before.kind} {before.name!r} is not in it"
    if before.fingerprint == now.fingerprint:
        return ""
    old, new = before.settings, now.settings
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)] if old else []
    what = "other files"
    if changed:
        what = f"other settings ({', '.join(changed[:_LISTED])})"
    return f"{before.kind} {before.name!r} has {what}"


_NARROW: Final[tuple[View, ...]] = (View.RESPONSE, View.DOCUMENT)
_MARK: Final = "."  # rewriting a text is seen where adding this to it is


def require_attackable(loaded: LoadedConfig) -> None:
    """Refuse a configuration whose defenses are all shown something else than rewritten texts."""
    views = stated_views(loaded)
    left = {name: view for name, view in views.items() if view in _NARROW}
    if left:
        left = unseen(left, load_data(loaded).samples())
    if len(left) == len(views):
        raise nothing_to_attack(left)


def stated_views(loaded: LoadedConfig) -> dict[str, View]:
    """Return what each defense is shown, as far as its settings say, baselines left out."""
    return {
        name: _stated(loaded, name)
        for name, settings in loaded.config.defenses.items()
        if settings.get("type") not in BASELINE_TYPES and settings.get("role") != BASELINE_ROLE
    }


def unseen(views: Mapping[str, View], samples: Iterable[Sample]) -> dict[str, View]:
    """Return the defenses that see nothing of a rewritten attack, such as a guard of responses."""
    left = {name: view for name, view in views.items() if view in _NARROW}
    for sample in samples:
        if not left:
            break
        if sample.is_attack:
            other = sample.prompt.with_text(sample.prompt.text + _MARK)
            left = {n: v for n, v in left.items() if other.shown(v) == sample.prompt.shown(v)}
    return left


def require_texts(samples: Iterable[Sample]) -> None:
    """Refuse attacks that are tool calls: rewriting words beside a call leaves the call alone."""
    calls = [
        sample.id
        for sample in samples
        if sample.is_attack and sample.prompt.messages[sample.prompt.under_test].calls
    ]
    if calls:
        count = (
            "1 attack of this run is a tool call"
            if len(calls) == 1
            else (f"{len(calls):,} attacks of this run are tool calls")
        )
        raise ConfigError(
            f"{count}, such as {calls[0][:60]!r}, and an adaptive attack rewrites texts.\n"
            "Next: measure texts in a run of their own, and adapt that."
        )


def nothing_to_attack(left: Mapping[str, View]) -> ConfigError:
    """Say that no defense is left, and why."""
    notes = "; ".join(left_out_note(name, view.value) for name, view in left.items())
    return ConfigError(
        f"There is no defense to attack: {notes or 'only baselines are configured'}.\n"
        "Next: name a defense of inputs too; what a guard of responses lets through is measured "
        "by `guardmark run` with a pipeline."
    )


def left_out_note(name: str, view: str) -> str:
    """Say why a defense is left out."""
    return f"{name} {sight_text(view)}, which no rewriting of an attack of these data changes"


def _stated(loaded: LoadedConfig, name: str, *, above: tuple[str, ...] = ()) -> View:
    """What a defense is shown; one made of others that all look elsewhere looks there too."""
    settings = loaded.parts["defenses", name]
    of = getattr(settings, "of", ())
    known = loaded.config.defenses
    members = [each for each in ((of,) if isinstance(of, str) else of) if each not in above]
    seen = {_stated(loaded, each, above=(*above, name)) for each in members if each in known}
    if len(seen) == 1:
        return seen.pop()
    view = getattr(settings, "view", None)
    if isinstance(view, View):
        return view
    return View.TEXT


CANARIES = 20  # canaries asked for each operator, where nothing else is said


def protected_of(
    parts: Parts, reader: RecordReader, *, canaries: int, trace: Path | None
) -> ProtectedTarget | None:
    """Say what the defenses of a run protect."""
    if parts.model is None:
        return None
    if trace is not None and not RunDir(path=trace.parent).target.exists():
        return None
    settings = {
        "kind": "adaptive-target",
        "model": _described(parts.model),
        "judges": [_described(judge) for judge in parts.judges],
        "canaries": COMPREHENSION_VERSION,
        "words_in_a_row": WORDS_IN_A_ROW,
        "least_overlap": LEAST_OVERLAP,
    }
    protected = ProtectedTarget(
        model=parts.model.part,
        judges=tuple(judge.part for judge in parts.judges),
        settings=settings,
        canaries=canaries,
    )
    return replace(protected, as_run=_as_run(reader, protected))


def target_name(protected: ProtectedTarget) -> str:
    """Return what a person calls the target model."""
    model = protected.settings.get("model")
    if isinstance(model, dict):
        return str(model["model"])
    return protected.model.name


def _described(built: BuiltPart) -> dict[str, str]:
    settings, manifest = built.manifest.settings, built.manifest
    model = settings.get("model") or settings.get("path") or manifest.type
    return {"name": manifest.name, "model": str(model), "fingerprint": manifest.fingerprint}


def _as_run(reader: RecordReader, protected: ProtectedTarget) -> Mapping[int, KnownAnswers]:
    """Return what the run got for attacks as they are; failed calls are asked again."""
    judges: tuple[Judge, ...] = protected.judges
    is_attack = [sample.is_attack for sample in reader.samples()]
    answers = {
        record.key.sample: cast("Response", answer_of(record))
        for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
        if record.key.repeat == 0 and record.outcome == "answered" and is_attack[record.key.sample]
    }
    verdicts: dict[int, dict[str, Verdict]] = {position: {} for position in answers}
    for layer, judge in protected.judged:
        stored = reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=layer_of(judge, judges))
        for record in stored:
            known = verdicts.get(record.key.sample)
            if record.key.repeat == 0 and known is not None and record.outcome != "error":
                known[layer] = cast("Verdict", answer_of(record))
    return {
        position: KnownAnswers(response=response, verdicts=verdicts[position])
        for position, response in answers.items()
    }
