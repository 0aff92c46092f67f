"""Which defenses an attacker who rewrites inputs can work on at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.app.data.reading import load_data
from guardmark.core.errors import ConfigError
from guardmark.core.sample import View
from guardmark.reports.chapters.adaptive.threat_model import sight_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.core.sample import Sample

BASELINES: Final = ("allow-all", "block-all", "coin")
"""Types of defenses that nobody attacks."""
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
        for name, said in loaded.config.defenses.items()
        if said.get("type") not in BASELINES
    }


def unseen(views: Mapping[str, View], samples: Iterable[Sample]) -> dict[str, View]:
    """Return the defenses that see nothing of a rewritten attack.

    A guard of responses sees one where the text under test is a response, a guard of documents
    where it is a document.
    """
    left = {name: view for name, view in views.items() if view in _NARROW}
    for sample in samples:
        if not left:
            break
        if sample.is_attack:
            other = sample.prompt.with_text(sample.prompt.text + _MARK)
            left = {n: v for n, v in left.items() if other.shown(v) == sample.prompt.shown(v)}
    return left


def nothing_to_attack(left: Mapping[str, View]) -> ConfigError:
    """Say that no defense is left, and why."""
    if not left:
        return ConfigError("There is no defense to attack: only baselines are configured.")
    told = "; ".join(left_out_note(name, view.value) for name, view in left.items())
    return ConfigError(
        f"There is no defense to attack: {told}.\n"
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
    return view if isinstance(view, View) else View.TEXT
