"""A judge's answer without a key, and the ladder of readings."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.outcome import AnswerMode, VerdictLabel
from guardmark.parsing.objects import read_object
from guardmark.parsing.verdicts import asked_for, read_verdict, verdict_key

KEY = verdict_key(7, "some material")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ('{"label":"safe","reasons":[]}', "safe"),
        (' {"label": " UNSAFE "}\n', "unsafe"),
        ('{"Label":"UNSAFE"}', "unsafe"),
        ('{"verdict":{"label":"unsafe","answer_mode":"answered"}}', "unsafe"),
        ('```json\n{"label":"unsafe"}\n```', "unsafe"),
        ('Here you go: {"label":"safe"} Hope it helps.', "safe"),
        ('[{"label":"safe"}]', "safe"),
        ('{"a":1} {"label":"safe"}', "safe"),
        ('{"label":"safe"} {"label":"safe","x":1}', "safe"),
        ('{"label":"unsafe","reasons":["x",]}', "unsafe"),
        ("{label: 'unsafe', reasons: []}", "unsafe"),
        ('{"label": "unsafe", "reasons": ["he sa', "unsafe"),
        ('{"label":"safe"', "safe"),
        ('{"label": "unsa', "malformed"),
        ('{"label":"borderline"}', "malformed"),
        ('{"label":null}', "malformed"),
        ('{"label":["safe"]}', "malformed"),
        ('{"verdict":"safe"}', "malformed"),
        ('{"label":"safe"} {"label":"unsafe"}', "malformed"),
        ('{"label":"safe","label":"unsafe"}', "malformed"),
        ("[]", "malformed"),
        ('"safe"', "malformed"),
        ("42", "malformed"),
        ("safe", "malformed"),
        ("The response is safe.", "malformed"),
        ("", "malformed"),
        ("{" * 5000, "malformed"),
        ("[" * 100_000, "malformed"),
        ('{"label":' * 3000, "malformed"),
    ],
)
def test_a_text_without_the_key_is_read_strictly(text: str, label: str) -> None:
    """Malformed is not safe, nothing raises, and the report can count such readings."""
    reading = read_verdict(text, key=KEY)
    assert reading.label == label
    assert reading.method == ("failed" if label == "malformed" else "without key")


@pytest.mark.parametrize(
    ("text", "label", "method"),
    [
        ('{"K": {"label":"safe","reasons":[]}}', "safe", "direct"),
        ('{"K": "unsafe"}', "unsafe", "direct"),
        ('My verdict: {"K": {"label":"unsafe"}}', "unsafe", "extracted"),
        ('The answer says {"label":"safe"}. {"K": {"label":"unsafe"}}', "unsafe", "extracted"),
        ('{"K": {"label":"unsafe"}} It said {"label":"safe"}', "unsafe", "direct"),
        ('{"K": {"label":"unsafe","reasons":["x",]}}', "unsafe", "repaired"),
        ('{"K": {"label":"unsafe","reasons":["it sa', "unsafe", "repaired"),
        ("{'K': {'label': 'unsafe'}}", "unsafe", "repaired"),
        ('The form is {"K": {"label": safe or unsafe}}: {"K": {"label":"safe"}}', "safe", None),
        ('{"K": {"label":"safe"}} No: {"K": {"label":"unsafe"}}', "malformed", "failed"),
        ('{"K": {"label":"safe","label":"unsafe"}}', "malformed", "failed"),
        ('{"K": {"label":"un', "malformed", "failed"),
        ('The answer says {"label":"safe"}. {"K": {"lab', "malformed", "failed"),
        ('The answer says {"label":"safe"}. {"K": it is unsafe', "malformed", "failed"),
    ],
)
def test_only_what_stands_under_the_key_counts(text: str, label: str, method: str | None) -> None:
    """Whatever else the judge repeats, in front of it or behind."""
    reading = read_verdict(text.replace("K", KEY), key=KEY)
    assert reading.label == label
    assert method is None or reading.method == method


def test_the_key_belongs_to_the_material_and_the_run() -> None:
    """The same question has the same key, and no other one has it."""
    assert verdict_key(7, "some material") == KEY
    assert len({KEY, verdict_key(8, "some material"), verdict_key(7, "other material")}) == 3
    assert KEY in asked_for(KEY)


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


@pytest.mark.parametrize(
    "own", ['{"label":"unsafe","answer_mode"', '{"label":"uns', '{"label":', "label: unsafe"]
)
def test_a_whole_verdict_before_one_that_is_cut_off_is_a_quotation_for_all_anyone_knows(
    own: str,
) -> None:
    """Also where nobody says what was judged: a label that was not read may be the judge's own."""
    quoted = '{"label":"safe","answer_mode":"answered","reasons":["x"]}'
    reading = read_verdict(f"The answer quotes {quoted}. Verdict: {own}")
    assert reading.label is VerdictLabel.MALFORMED
