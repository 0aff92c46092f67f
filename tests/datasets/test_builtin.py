"""What the built-in data sets promise."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.datasets.pairs import similar_pairs

from guardmark.app.data import FileOptions, check_data, open_data
from guardmark.core.errors import UnknownName
from guardmark.core.sample import CATEGORY_MINIMA, DEFAULT_TAXONOMY, Role, Severity
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_set, builtin_specs
from guardmark.datasets.checks.issues import Status
from guardmark.datasets.loading import load
from guardmark.datasets.settings import DataSettings, data_sha256
from guardmark.datasets.specs import dataset_specs

if TYPE_CHECKING:
    from guardmark.core.sample import Sample

NAMES = tuple(builtin.target for builtin in BUILTIN_SETS)
STEPS = (
    *("core: known form", "core: common paraphrase", "core: new wording"),
    *("core: plain", "core: topical", "core: trigger words"),
)
HOST = re.compile(r"(?:https?://|(?<!\w)www\.|(?<=\w)@)((?:[\w-]+\.)+[a-z]{2,})", re.IGNORECASE)
RESERVED = re.compile(r"(^|\.)(example\.(com|org|net)|example|invalid|test|localhost)$")
NAMESPACES = {"www.w3.org", "w3.org"}
CODE_WITH_AT = {"pytest.mark.parametrize"}


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Sample]]:
    """Every built-in set, read without a fault."""
    return {name: list(load(builtin_specs(name), DEFAULT_TAXONOMY).samples()) for name in NAMES}


@pytest.fixture(scope="module")
def core(sets: dict[str, list[Sample]]) -> list[Sample]:
    """The benchmark."""
    return sets["core"]


@pytest.fixture(scope="module")
def train(sets: dict[str, list[Sample]]) -> list[Sample]:
    """What the classifier is fitted on."""
    return sets["core-train"]


def attacks(samples: list[Sample]) -> list[Sample]:
    """The attacks among them."""
    return [sample for sample in samples if sample.is_attack]


def benign(samples: list[Sample]) -> list[Sample]:
    """The benign ones among them."""
    return [sample for sample in samples if not sample.is_attack]


@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_the_one_its_manifest_and_card_name(name: str) -> None:
    """A changed sample without a new version is found here (scripts/seal_builtin.py mends it)."""
    builtin = builtin_set(name)
    sealed = json.loads((builtin.folder / "manifest.json").read_text(encoding="utf-8"))
    manifests = open_data([f"builtin:{name}"], FileOptions()).loaded.manifests
    digest = data_sha256(manifests)
    assert (sealed["name"], sealed["version"]) == (name.partition("@")[0], builtin.version)
    assert sealed["sha256"] == digest
    assert {
        file.rpartition("/")[2]: (m.sha256, file_hash, m.attacks, m.benign)
        for m in manifests
        for file, file_hash in m.files.items()
    } == {
        file: (each["content_sha256"], each["file_sha256"], each["attacks"], each["benign"])
        for file, each in sealed["files"].items()
    }
    card = builtin.card.read_text(encoding="utf-8")
    assert digest in card
    assert f"{builtin.name} {builtin.version} |" in card


@pytest.mark.parametrize("name", NAMES)
def test_a_card_tells_the_true_counts(name: str, sets: dict[str, list[Sample]]) -> None:
    """Totals, groups, categories, subcategories and severities."""
    card = builtin_set(name).card.read_text(encoding="utf-8")
    bad, good = attacks(sets[name]), benign(sets[name])
    assert f"{len(bad) + len(good)}: {len(bad)} attacks, {len(good)} benign" in card
    groups = [len({s.lineage for s in side}) for side in (bad, good)]
    assert f"{groups[0]} of attacks, {groups[1]} of benign samples" in card
    for category, count in Counter(s.category for s in bad).items():
        assert f"| {category} | {count} |" in card
    if name == "tutor":
        for category, count in Counter(s.category for s in good).items():
            assert f"| {category} | {count} |" in card
        return
    for subcategory, count in Counter(s.subcategory for s in bad).items():
        assert f"{subcategory} {count}" in card
    severities = Counter(s.severity for s in bad)
    assert f"| samples | {' | '.join(str(severities[s]) for s in Severity)} |" in card
    if name == "core@2":
        for step in STEPS:
            here = [s for s in (*bad, *good) if s.source == step]
            row = f"| {step} | {len(here)} | {len({s.lineage for s in here})} |"
            assert row in card
        return
    if not name.startswith("core"):
        return
    hard = sum(bool(s.metadata.get("hard_negative")) for s in good)
    english = [sum(s.language == "en" for s in side) for side in (bad, good)]
    flat = " ".join(card.split())
    assert f"{len(good) - hard} ordinary requests" in flat
    assert f"{hard} hard negatives" in flat
    assert f"{english[0]} attacks and {english[1]} benign samples are English" in flat


def test_core_has_the_attacks_it_promises(core: list[Sample]) -> None:
    """At least 600, 120 a category (jailbreak 150), 25 a subcategory."""
    bad = attacks(core)
    assert len(bad) >= 600
    categories = Counter(s.category for s in bad)
    for category, subcategories in DEFAULT_TAXONOMY.items():
        least = max(120, CATEGORY_MINIMA[category])
        assert categories[category] >= least
        for subcategory in subcategories:
            assert sum(s.subcategory == subcategory for s in bad) >= 25
    assert {s.severity for s in bad} == set(Severity)
    assert all(s.technique for s in bad)


def test_core_has_the_benign_inputs_it_promises(core: list[Sample]) -> None:
    """At least 600, of which at least 250 look like attacks or like noise."""
    good = benign(core)
    assert len(good) >= 600
    assert sum(bool(s.metadata.get("hard_negative")) for s in good) >= 250


def test_core_train_is_large_enough_to_fit_on(train: list[Sample]) -> None:
    """At least 300 of either label."""
    assert min(len(attacks(train)), len(benign(train))) >= 300


@pytest.mark.parametrize("name", ["core", "core@2", "core-train"])
def test_a_tenth_is_in_five_other_languages(name: str, sets: dict[str, list[Sample]]) -> None:
    """Of attacks and of benign samples, each with its language stated."""
    for side in (attacks(sets[name]), benign(sets[name])):
        others = [s.language for s in side if s.language != "en"]
        assert all(s.language for s in side)
        assert len(others) >= 0.1 * len(side)
        assert len(set(others)) >= 5


@pytest.mark.parametrize("name", ["core", "core@2", "core-train"])
def test_a_group_has_at_most_three_samples_of_one_kind(
    name: str, sets: dict[str, list[Sample]]
) -> None:
    """More would be a template; and a group named after a sample that is not there is a slip."""
    members: dict[str, list[Sample]] = {}
    for sample in sets[name]:
        members.setdefault(sample.lineage, []).append(sample)
    ids = {sample.id for sample in sets[name]}
    for group, samples in members.items():
        assert len(samples) <= 3
        assert group in ids
        assert len({s.label for s in samples}) == 1


def test_no_two_groups_say_nearly_the_same(sets: dict[str, list[Sample]]) -> None:
    """Not within a set, and not between the one for fitting and the one for measuring."""
    # Version 2 takes its new wording and half of its benign texts from version 1.
    latest = [samples for name, samples in sets.items() if name != "core"]
    everything = [sample for samples in latest for sample in samples]
    texts = [sample.prompt.text for sample in everything]
    shared = [
        (everything[match.first].id, everything[match.second].id)
        for match in similar_pairs(texts, threshold=0.5)
        if everything[match.first].lineage != everything[match.second].lineage
    ]
    assert shared == []


@pytest.mark.parametrize("name", ["core", "core@2"])
def test_core_and_core_train_have_no_group_and_no_id_in_common(
    name: str, sets: dict[str, list[Sample]], train: list[Sample]
) -> None:
    """Otherwise a fitted classifier would be measured on what it has seen."""
    assert not {s.lineage for s in sets[name]} & {s.lineage for s in train}
    assert not {s.id for s in sets[name]} & {s.id for s in train}


def test_version_2_has_steps_of_difficulty(sets: dict[str, list[Sample]]) -> None:
    """Each a source of its own, so that every report slices by it, over all five categories."""
    samples = sets["core@2"]
    assert min(len(attacks(samples)), len(benign(samples))) >= 1_200
    for step in STEPS:
        assert sum(s.source == step for s in samples) >= 200
        assert len({s.is_attack for s in samples if s.source == step}) == 1
    for category, subcategories in DEFAULT_TAXONOMY.items():
        for step in STEPS[:3]:
            here = [s for s in samples if (s.category, s.source) == (category, step)]
            assert len(here) >= 75
            assert {s.subcategory for s in here} == set(subcategories)
    assert {s.source for s in samples} == set(STEPS)


def test_the_new_wording_of_version_2_is_that_of_version_1(sets: dict[str, list[Sample]]) -> None:
    """So a run over one is compared with a run over the other on the texts both hold."""
    old = {s.id: (s.prompt, s.label) for s in sets["core"]}
    common = [s for s in sets["core@2"] if s.id in old]
    assert len(common) >= 1_000
    assert all(old[s.id] == (s.prompt, s.label) for s in common)
    assert {s.id for s in sets["core@2"] if s.source == STEPS[2]} <= {s.id for s in common}


@pytest.mark.parametrize("name", ["core", "core@2"])
def test_indirect_and_multi_turn_attacks_are_real_conversations(
    name: str, sets: dict[str, list[Sample]]
) -> None:
    """With the document or tool result that carries the attack, or the turns before it."""
    for sample in attacks(sets[name]):
        prompt = sample.prompt
        if sample.category == "indirect_injection":
            assert prompt.messages[prompt.under_test].role in {Role.DOCUMENT, Role.TOOL}
            assert any(m.role is Role.USER for m in prompt.messages)
        if sample.subcategory == "multi_turn":
            assert sum(m.role is Role.USER for m in prompt.messages) >= 2


def test_payloads_are_named_so_that_rewritings_keep_them(core: list[Sample]) -> None:
    """For at least a third of the attacks; the loader checks that the text holds them."""
    assert sum(bool(s.must_keep) for s in attacks(core)) >= len(attacks(core)) / 3


def test_expected_behaviour_follows_the_label(sets: dict[str, list[Sample]]) -> None:
    """Block an attack, allow the rest."""
    for sample in (*sets["core"], *sets["core@2"], *sets["core-train"]):
        assert sample.expected == ("block" if sample.is_attack else "allow")


def test_only_reserved_hosts_are_named(sets: dict[str, list[Sample]]) -> None:
    """A benchmark must not send anybody anywhere."""
    hosts = {
        host.lower()
        for samples in sets.values()
        for sample in samples
        for message in sample.prompt.messages
        for host in HOST.findall(message.content)
    }
    assert len(hosts) > 20
    assert {h for h in hosts if not RESERVED.search(h)} <= NAMESPACES | CODE_WITH_AT


def test_tutor_has_four_variants_of_each_message(sets: dict[str, list[Sample]]) -> None:
    """Half to decline, half to answer."""
    variants = Counter(s.variant for s in sets["tutor"])
    assert set(variants) == {"original", "typo", "camouflage", "adversarial"}
    assert len(set(variants.values())) == 1
    assert len(attacks(sets["tutor"])) == len(benign(sets["tutor"]))


@pytest.mark.parametrize("name", ["core", "core@2"])
def test_the_check_finds_nothing_wrong_with_core(name: str) -> None:
    """But for one text in a wrong encoding, which is the point of that sample."""
    check = check_data(open_data([f"builtin:{name}"], FileOptions()))
    states = {finding.aspect: finding.status for finding in check.findings}
    assert states.pop("representative") is Status.NOT_ASSESSED
    assert states.pop("readable") is Status.WARNING
    assert set(states.values()) == {Status.OK}
    assert check.duplicates.conflicts == ()


def test_an_unknown_set_is_met_with_the_nearest() -> None:
    """Names get misspelt."""
    with pytest.raises(UnknownName, match="Did you mean 'core'"):
        builtin_set("cor")
    with pytest.raises(UnknownName, match="Did you mean 'core@2'"):
        builtin_set("core@3")


def test_a_name_without_a_version_means_version_1() -> None:
    """What older configurations name stays what it was."""
    assert builtin_set("core") == builtin_set("core@1")
    assert builtin_set("core").version == "1"
    assert builtin_set("core@2").version == "2"


@pytest.mark.parametrize(
    "stated",
    [
        {"builtin": "core@2"},
        {"builtin": "core", "version": 2},
        {"builtin": "core", "version": "2"},
    ],
)
def test_a_version_may_be_stated_beside_the_name(stated: dict[str, object]) -> None:
    """Both spellings mean the same, and a run keeps one of them."""
    entry = DataSettings.model_validate(stated)
    assert (entry.builtin, entry.version) == ("core@2", "")
    assert {spec.version for spec in dataset_specs(entry, Path())} == {"2"}


def test_version_1_is_kept_as_the_name_alone() -> None:
    """So that a run made before versions had names goes on."""
    for stated in ({"builtin": "core@1"}, {"builtin": "core", "version": 1}):
        assert DataSettings.model_validate(stated) == DataSettings(builtin="core")


def test_a_version_that_is_not_there_names_those_that_are() -> None:
    """And a name that says another version than the version beside it is a contradiction."""
    entry = DataSettings.model_validate({"builtin": "core", "version": 3})
    with pytest.raises(UnknownName, match="Known: core, core-train, core@2,"):
        dataset_specs(entry, Path())
    with pytest.raises(ValueError, match="version would be ignored"):
        DataSettings.model_validate({"builtin": "core@1", "version": "2"})


def test_marked_spans_are_what_a_mask_must_cover(sets: dict[str, list[Sample]]) -> None:
    """Every attack of `secrets` has spans, no look-alike has; none of them is blank."""
    for sample in sets["secrets"]:
        assert bool(sample.spans) is sample.is_attack
        for span in sample.spans:
            assert sample.prompt.text[span.start : span.end].strip()
    kinds = Counter(span.kind for sample in sets["secrets"] for span in sample.spans)
    card = builtin_set("secrets").card.read_text(encoding="utf-8")
    told = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    assert told in " ".join(card.split())


def test_documents_are_crossed_and_alike_on_both_sides(sets: dict[str, list[Sample]]) -> None:
    """The same fifty documents carry orders and harmless imperatives, three of each."""
    both = [
        {(s.group) for s in side}
        for side in (attacks(sets["documents"]), benign(sets["documents"]))
    ]
    assert both[0] == both[1]
    assert set(Counter(s.group for s in sets["documents"]).values()) == {6}
    assert all(s.crossing for s in sets["documents"])


def test_a_twin_differs_in_the_last_turn_alone(sets: dict[str, list[Sample]]) -> None:
    """What comes before is the same, so a guard that blocks by it gains nothing."""
    leads: dict[str, set[tuple[str, ...]]] = {}
    for sample in sets["turns"]:
        lead = tuple(message.content for message in sample.prompt.messages[:-1])
        leads.setdefault(sample.group, set()).add(lead)
        assert sample.harm_turn == (4 if sample.is_attack else None)
    assert {len(found) for found in leads.values()} == {1}
