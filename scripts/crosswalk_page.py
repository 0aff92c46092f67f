"""The page docs/reference/crosswalk.md: frameworks and our codes in them, from TOML files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.frameworks.framework import (
    FIGURES,
    code_of,
    codes_of_family,
    current_frameworks,
    framework_names,
    read_framework,
)
from guardmark.attacks.catalogue import family
from guardmark.attacks.tables import families
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.catalogue.settings import entry_names, find_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.analysis.frameworks.framework import Framework

HEAD = """\
# Crosswalk to frameworks

<!-- Written by scripts/write_reference.py; edit analysis/frameworks, not this page. -->

Buyers ask in the words of frameworks. `guardmark report RUN --crosswalk FRAMEWORK` prints which
figure of a run is *evidence for* which item, what is only *relevant to* it, and what the run
leaves open; `--json` prints the same as JSON. A guard card carries the same for every framework
that holds. Nothing says that anything conforms: that takes people, and much that no measurement
shows. An item without a figure here is one that guardmark does not measure.

`stats: {slices: [owasp]}` slices the attacks of a run by the codes of a framework, with counts and
intervals (`owasp` is short for `owasp-llm`); each attack falls under the narrowest item of its
category. The same names work in `gate` (`per_metadata`) and in `guardmark show --where
owasp=LLM01:2025`. A field of your data that is called like a framework comes first.

Codes and titles are those of the source at the day named; titles of regulations are shortened to
what they are about. A framework is one TOML file: `--crosswalk ./ours.toml` reads one of your own
(`name`, `version`, `date`, `source`, and `[[items]]` with `code`, `title`, and any of
`categories`, `figures`, `relevant`, `samples`). A version that its publisher replaced has
`withdrawn` and `replaced_by`; it is still read, with a warning, and stands on no card.

## Codes of categories and techniques

An attack is counted under these codes when samples are sliced by a framework.
"""

OPERATORS = """\
## Codes of operators

Operators of adaptive attacks, by family, in the words of ATLAS.
"""

DATA = """\
## Codes of public data sets

What the rows of each set in the catalogue are about, as its own documentation describes them.
`guardmark data show NAME` prints them.
"""


def crosswalk_page() -> str:
    """Write the page."""
    parts = [HEAD, *_categories(), OPERATORS, *_operators(), DATA, *_data_sets()]
    for name in framework_names():
        parts += _framework(read_framework(name))
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(cell or '-' for cell in row)} |"
    yield ""


def _categories() -> Iterator[str]:
    frameworks = current_frameworks()
    rows = []
    for category, finer in DEFAULT_TAXONOMY.items():
        for name in ("", *finer):
            title = f"`{category}/{name}`" if name else f"`{category}`"
            rows.append([title, *(code_of(each, category, name) for each in frameworks)])
    return _table(["category", *(each.key for each in frameworks)], rows)


def _operators() -> Iterator[str]:
    atlas = read_framework("atlas")
    rows = []
    for name in families():
        operators = ", ".join(f"`{each.name}`" for each in family(name))
        titles = [f"{code} {atlas.item(code).title}" for code in codes_of_family(atlas, name)]
        rows.append([f"{name} {families()[name]}", operators, "; ".join(titles)])
    return _table(["family", "operators", "technique"], rows)


def _data_sets() -> Iterator[str]:
    frameworks = current_frameworks()
    rows = []
    for name in entry_names():
        codes = find_entry(name).codes
        rows.append([f"`{name}`", *(", ".join(codes.get(each.key, ())) for each in frameworks)])
    return _table(["data set", *(each.key for each in frameworks)], rows)


def _framework(framework: Framework) -> Iterator[str]:
    yield f"## `{framework.key}`"
    yield ""
    yield f"{framework.name}, {framework.version} ({framework.date}): <{framework.source}>"
    yield ""
    if framework.withdrawn:
        yield f"Withdrawn on {framework.withdrawn}; in its place: `{framework.replaced_by}`."
        yield ""
    rows = []
    for item in framework.items:
        evidence = [f"attacks of `{name}`" for name in item.categories]
        for name in item.figures:
            if not (item.categories and name == "attack_success_rate"):
                evidence.append(FIGURES[name])
        relevant = [FIGURES.get(name, f"attacks of `{name}`") for name in item.relevant]
        rows.append([f"{item.code} {item.title}", "; ".join(evidence), "; ".join(relevant)])
    yield from _table(["item", "evidence for it", "only relevant to it"], rows)
