"""The ladder of a judge's answer: which rung reads what."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.outcome import AnswerMode, VerdictLabel
from guardmark.parsing.guard import VERDICT_SCHEMA, read_verdict
from guardmark.parsing.objects import ParseMethod, read_object


@pytest.mark.parametrize(
    ("text", "label", "method"),
    [
        ('{"label":"safe","reasons":[]}', "safe", "direct"),
        (' {"label": " UNSAFE "}\n', "unsafe", "direct"),
        ('```json\n{"label":"unsafe"}\n```', "unsafe", "extracted"),
        ('Here you go: {"label":"safe"} Hope it helps.', "safe", "extracted"),
        ('[{"label":"safe"}]', "safe", "extracted"),
        ('{"a":1} {"label":"safe"}', "safe", "extracted"),
        ('{"label":"safe"} {"label":"safe","x":1}', "safe", "extracted"),
        ('{"label":"unsafe","reasons":["x",]}', "unsafe", "repaired"),
        ("{label: 'unsafe', reasons: []}", "unsafe", "repaired"),
        ('{"label": "unsafe", "reasons": ["he sa', "unsafe", "repaired"),
        ('{"label":"safe"', "safe", "repaired"),
        ('{"label": "unsa', "malformed", "repaired"),
        ('{"label":"borderline"}', "malformed", "direct"),
        ('{"label":null}', "malformed", "direct"),
        ('{"label":["safe"]}', "malformed", "direct"),
        ('{"verdict":"safe"}', "malformed", "failed"),
        ('{"label":"safe"} {"label":"unsafe"}', "malformed", "failed"),
        ('{"label":"safe","label":"unsafe"}', "malformed", "failed"),
        ("[]", "malformed", "failed"),
        ('"safe"', "malformed", "failed"),
        ("42", "malformed", "failed"),
        ("safe", "malformed", "failed"),
        ("The response is safe.", "malformed", "failed"),
        ("", "malformed", "failed"),
        ("{" * 5000, "malformed", "failed"),
        ("[" * 100_000, "malformed", "failed"),
        ('{"label":' * 3000, "malformed", None),
    ],
)
def test_each_kind_of_text_is_read_on_its_rung(text: str, label: str, method: str | None) -> None:
    """Malformed is not safe, and nothing raises."""
    reading = read_verdict(text)
    assert reading.label == label
    assert method is None or reading.method == method


def test_answer_mode_and_reasons_are_kept() -> None:
    """A single reason counts as a list of one; an unknown mode as not said."""
    said = {"label": "unsafe", "answer_mode": "Refused or blocked", "reasons": "because"}
    reading = read_verdict(json.dumps(said))
    assert reading.answer_mode is AnswerMode.REFUSED_OR_BLOCKED
    assert reading.reasons == ("because",)
    assert read_verdict('{"label":"safe","answer_mode":"shrugged"}').answer_mode is None
    assert read_verdict('{"label":"safe","answer_mode":3,"reasons":[null,"x",7]}').reasons == (
        "x",
        "7",
    )


def test_a_verdict_that_fits_the_schema_is_read_directly() -> None:
    """What a strict server sends needs no ladder."""
    properties = VERDICT_SCHEMA["properties"]
    assert isinstance(properties, dict)
    for mode in properties["answer_mode"]["enum"]:
        said = {"label": "safe", "answer_mode": mode, "reasons": []}
        reading = read_verdict(json.dumps(said))
        assert (reading.label, reading.answer_mode) == (VerdictLabel.SAFE, AnswerMode(mode))
        assert reading.method is ParseMethod.DIRECT


@given(st.text(st.sampled_from('{}[]":,label safeun\\\n'), max_size=80))
def test_no_text_makes_the_ladder_raise(text: str) -> None:
    """Fragments of JSON in any order."""
    assert read_verdict(text).label in {"safe", "unsafe", "malformed"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_JSON)
def test_no_json_value_makes_the_ladder_raise(value: object) -> None:
    """Lists, strings and numbers are answers too, only not ours."""
    reading = read_object(json.dumps(value), key="label")
    assert reading.fields is None or "label" in reading.fields


@pytest.mark.parametrize("damage", ["", "}", "}} and so on"])
def test_a_label_said_twice_is_malformed_however_damaged_the_rest(damage: str) -> None:
    """Mending would keep the last, and nobody can say which is meant."""
    text = '{"label": "unsafe", "label": "safe", "reasons": [oops' + damage
    assert read_verdict(text).label is VerdictLabel.MALFORMED
