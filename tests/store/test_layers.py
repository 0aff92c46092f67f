"""Names of layers are the same in every file that was ever stored, and no two are alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guardmark.store import layers
from guardmark.store.layers import (
    ADAPTIVE,
    ARMS,
    AUDIT_PREFIX,
    BLIND,
    FINDINGS_PREFIX,
    HEADLINE,
    LEFT_OUT,
    MODEL_LAYERS,
    NULL,
    PLANTED_PREFIX,
    REPAIRED_PREFIX,
    REPEATED_ARMS,
    asked_layers,
    first_layer,
    is_target_layer,
    seed_layer,
)

STORED = {
    "ADAPTIVE": "adaptive",
    "BLIND": "adaptive/blind",
    "NULL": "adaptive/null",
    "GRADIENT": "adaptive/gradient",
    "REPAIRED": "adaptive/repaired",
    "REPAIRED_FIRST": "adaptive/repaired-first",
    "ATTACKER": "adaptive/attacker",
    "EQUIVALENCE": "adaptive/equivalence",
    "CANDIDATES": "adaptive/candidates",
    "CRITIC": "adaptive/critic",
    "TWIN_ATTACKER": "adaptive/twin/attacker",
    "TWIN_EQUIVALENCE": "adaptive/twin/equivalence",
    "TWIN_CANDIDATES": "adaptive/twin/candidates",
    "TARGET": "adaptive/target",
    "VERDICT": "adaptive/verdict",
    "CANARY_REPLIES": "adaptive/canaries",
    "LEFT_OUT": "adaptive/left-out",
    "FINDINGS_PREFIX": "adaptive/findings/",
    "REPAIRED_PREFIX": "adaptive/repaired/",
    "AUDIT_PREFIX": "adaptive/audit-",
    "HEADLINE": "headline/",
    "PLANTED_PREFIX": "planted/",
}
"""As they stand in files; a line may be added here, none may change."""
SEEDS = st.integers(1, 10**6)


def test_names_are_those_that_stored_runs_hold() -> None:
    """Another name, or one that is gone, would leave stored rows uncounted."""
    named = {name: value for name, value in vars(layers).items() if name.isupper()}
    assert {name: value for name, value in named.items() if isinstance(value, str)} == STORED


def test_arms_are_asked_in_the_order_of_a_trace() -> None:
    """The order is that of the lines of `trace.jsonl`, so it is stored too."""
    assert (
        *("adaptive", "adaptive/blind", "adaptive/null", "adaptive/gradient"),
        *("adaptive/repaired", "adaptive/repaired-first"),
    ) == ARMS
    assert REPEATED_ARMS == ("adaptive", "adaptive/blind", "adaptive/null")
    assert MODEL_LAYERS == (
        "adaptive/attacker",
        "adaptive/equivalence",
        "adaptive/candidates",
        "adaptive/critic",
        "adaptive/twin/attacker",
        "adaptive/twin/equivalence",
        "adaptive/twin/candidates",
    )


def test_every_layer_is_of_one_kind() -> None:
    """A defense's tries, what models were asked, the target model, and settings."""
    kinds = {
        name: (name in ARMS, name in MODEL_LAYERS, is_target_layer(name), name == LEFT_OUT)
        for name in STORED.values()
        if name not in {FINDINGS_PREFIX, REPAIRED_PREFIX, AUDIT_PREFIX, HEADLINE, PLANTED_PREFIX}
    }
    assert {name for name, kind in kinds.items() if sum(kind) != 1} == set()


def test_verdicts_of_several_judges_speak_of_the_target_model() -> None:
    """Each judge has a layer behind that of one; a name that only begins alike has not."""
    assert is_target_layer("adaptive/verdict/strict")
    assert not is_target_layer("adaptive/verdicts")
    assert not is_target_layer("adaptive/findings/verdict")


def test_the_first_seed_stands_where_it_always_stood() -> None:
    """Further seeds have layers of their own; names of defenses are none."""
    assert seed_layer(BLIND, 1) == BLIND
    assert seed_layer(BLIND, 12) == "adaptive/seed-12/blind"
    assert seed_layer("adaptive", 2) == "adaptive/seed-2"
    assert first_layer("adaptive/findings/seed-2") == "adaptive/findings/seed-2"
    assert first_layer("run") == "run"


@given(st.sampled_from(REPEATED_ARMS), SEEDS)
def test_a_layer_of_a_seed_leads_back_to_its_arm(arm: str, number: int) -> None:
    """And no two seeds share one."""
    layer = seed_layer(arm, number)
    assert first_layer(layer) == arm
    assert layer != seed_layer(arm, number + 1)


@given(st.sets(SEEDS, max_size=5))
def test_seeds_are_asked_in_their_order(numbers: set[int]) -> None:
    """By number and not by letter, the first seed's arms before; what else is stored is none."""
    stored = [seed_layer("adaptive", number) for number in numbers]
    further = sorted(numbers - {1})
    expected = [seed_layer(arm, number) for number in further for arm in ARMS]
    assert asked_layers([*stored, NULL, "run", "adaptive/seed-2x"]) == (*ARMS, *expected)


def test_a_repaired_defense_has_seeds_where_the_defense_itself_has_one() -> None:
    """What further searches of a repaired defense were told is read like all else."""
    asked = asked_layers([ADAPTIVE, "adaptive/seed-2/repaired", "adaptive/seed-3/verdict"])
    assert "adaptive/seed-2/repaired" in asked
    assert not any(layer.startswith("adaptive/seed-3") for layer in asked)
