"""Arms of a pipeline in a configuration: what is refused, where, and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from guardmark.app.parts.loading import config_sha256, parse_config, resolved
from guardmark.app.preflight import check_config
from guardmark.app.settings import Config
from guardmark.core.chunks import ChunkRule
from guardmark.core.errors import ConfigError
from guardmark.core.place import Place

HEAD = """\
version: 1
data: [{path: data.jsonl}]
defenses:
  words: {type: pattern, keywords: [bomb]}
  leaks: {type: pattern, keywords: [plum], view: response}
  one: {type: chain, of: [words, leaks]}
  mask:
    {type: http, url: "http://127.0.0.1:9/", body: {text: {$input: text}}, action: "$.did", actions: {masked: rewrite}, rewritten: "$.text"}
pipeline:
  model: {type: scripted, otherwise: "Yes."}
  judges: [{type: rules, unsafe: [plum]}]
"""


def lay_out(folder: Path, settings: str) -> Path:
    """Lay a configuration and its data into a folder."""
    rows = '{"label": "attack", "text": "a bomb"}\n{"label": "benign", "text": "a bun"}\n'
    (folder / "data.jsonl").write_text(rows, encoding="utf-8")
    path = folder / "bench.yaml"
    path.write_text(HEAD + settings, encoding="utf-8")
    return path


MISTAKES = {
    "a guard that reads answers, before the model": (
        "  arms: {both: {input: leaks}}\n",
        ("bench.yaml:12", "pipeline.arms.both.input", "view: response", "Next: name leaks at"),
    ),
    "a chain with a member that reads answers, before the model": (
        "  guards: [none, one]\n",
        ("bench.yaml:12", "pipeline.guards", "leaks looks at its answer", "Next: name leaks at"),
    ),
    "a guard that nobody knows": (
        "  arms: {both: {output: leak}}\n",
        ("bench.yaml:12", "no defense is called 'leak'", "Did you mean", "leaks"),
    ),
    "guards beside arms": (
        "  guards: [none, words]\n  arms: {both: {input: words}}\n",
        ("bench.yaml", "guards and arms", "leave out guards"),
    ),
    "an arm that is named twice": (
        "  arms:\n    both: {input: words}\n    both: {output: words}\n",
        ("bench.yaml", "'both' appears twice"),
    ),
    "a guard of documents that reads answers": (
        "  arms: {both: {context: leaks}}\n",
        ("bench.yaml:12", "pipeline.arms.both.context", "view: response", "Next: name leaks at"),
    ),
    "a value of each that is none": (
        "  arms: {both: {context: {guard: words, each: some}}}\n",
        ("bench.yaml:12", "pipeline.arms.both.context", "each is true", "not 'some'"),
    ),
    "a setting of a guard of documents that nobody knows": (
        "  arms: {both: {context: {guard: words, every: 3}}}\n",
        ("bench.yaml:12", "knows guard and each", "'every'"),
    ),
    "a guard of documents that is named twice": (
        "  arms: {both: {context: [words, {guard: words, each: false}]}}\n",
        ("bench.yaml:12", "names 'words' twice"),
    ),
    "a guard that is named twice at a place": (
        "  arms: {both: {input: [words, words]}}\n",
        ("bench.yaml:12", "names 'words' twice"),
    ),
    "guards in the arm without a guard": (
        "  arms: {bare: {input: words}}\n",
        ("arms.bare has guards", "give it another name"),
    ),
    "a chunk of nothing": (
        "  arms: {live: {output: {guard: leaks, every: 0}}}\n",
        ("bench.yaml:12", "output.every: must be a whole number of characters from 1", "found 0"),
    ),
    "a chunk of less than nothing": (
        "  arms: {live: {output: {guard: leaks, every: -5}}}\n",
        ("bench.yaml:12", "output.every: must be a whole number of characters from 1", "found -5"),
    ),
    "a chunk that is a word": (
        "  arms: {live: {output: {guard: leaks, every: often}}}\n",
        ("bench.yaml:12", "`all` for once about the whole answer", "found 'often'"),
    ),
    "a chunk of a part of a character": (
        "  arms: {live: {output: {guard: leaks, every: 2.5}}}\n",
        ("bench.yaml:12", "output.every: must be a whole number", "found 2.5"),
    ),
    "a list of chunks with a wrong one": (
        "  arms: {live: {output: {guard: leaks, every: [1, 0]}}}\n",
        ("bench.yaml:12", "live.output.every must be a whole number", "found 0"),
    ),
    "a list of no chunk": (
        "  arms: {live: {output: {guard: leaks, every: []}}}\n",
        ("bench.yaml:12", "live.output.every", "found an empty list"),
    ),
    "an arm that is named as a list of chunks names one": (
        "  arms: {live-every-5: {}, live: {output: {guard: leaks, every: [5]}}}\n",
        ("bench.yaml:12", "live-every-5 is an arm, and live makes one of that name"),
    ),
    "chunks of what users write": (
        "  arms: {live: {input: {guard: words, every: 5}}}\n",
        ("bench.yaml:12", "input: has every, which is for the guard at output"),
    ),
    "a guard in chunks among others": (
        "  arms: {live: {output: [words, {guard: leaks, every: 5}]}}\n",
        ("bench.yaml:12", "holds it back", "or a chain of several"),
    ),
    "too many calls about one answer": (
        "  arms: {live: {output: {guard: leaks, every: 1, most_calls: 3}}}\n",
        ("bench.yaml:12", "leaks 4 times about an answer of 4 characters", "Next: a larger every"),
    ),
    "a guard that rewrites what has gone out": (
        "  arms: {live: {output: {guard: mask, every: 5}}}\n",
        ("bench.yaml:12", "mask rewrites what it is shown", "Next: leave out every"),
    ),
    "a place that is not there": (
        "  arms: {both: {before: words}}\n",
        ("bench.yaml:12", "before"),
    ),
}


@pytest.mark.parametrize(("settings", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_says_what_is_wrong_where_and_what_to_do(
    tmp_path: Path, settings: str, words: tuple[str, ...]
) -> None:
    """In at most five lines, before anything is called."""
    path = lay_out(tmp_path, settings)
    with pytest.raises(ConfigError) as raised:
        check_config(path)
    message = str(raised.value)
    for word in words:
        assert word in message
    assert len(message.splitlines()) <= 5


def test_a_name_that_decisions_about_answers_are_stored_under_is_taken(tmp_path: Path) -> None:
    """Or two different things would stand under one name."""
    text = HEAD.replace("  one:", '  "words@output": {type: allow-all}\n  one:')
    with pytest.raises(ConfigError, match="'words@output' is taken"):
        parse_config(
            f"{text}  arms: {{both: {{output: words}}}}\n", folder=tmp_path, shown_as="here.yaml"
        )


def test_arms_are_read_by_place_and_written_as_they_were_read(tmp_path: Path) -> None:
    """A name alone is a list of one; what is resolved can be read again."""
    text = f"{HEAD}  arms: {{bare: {{}}, both: {{input: [words], output: leaks}}}}\n"
    config = parse_config(text, folder=tmp_path, shown_as="here.yaml").config
    pipeline = config.pipeline
    assert pipeline is not None
    assert pipeline.arm_names == ("bare", "both")
    assert pipeline.arms["both"].guards_at() == {Place.INPUT: ("words",), Place.OUTPUT: ("leaks",)}
    assert pipeline.arms["bare"].guards_at() == {}
    assert Config.model_validate(resolved(config)) == config


def test_the_short_form_names_arms_by_their_guards(tmp_path: Path) -> None:
    """Its hash is what it was before there were arms."""
    loaded = parse_config(f"{HEAD}  guards: [none, words]\n", folder=tmp_path, shown_as="x.yaml")
    assert loaded.config.pipeline is not None
    assert loaded.config.pipeline.arm_names == ("none", "words")
    stated = parse_config(
        f"{HEAD}  guards: [none, words]\n  arms: {{}}\n", folder=tmp_path, shown_as="x.yaml"
    )
    hashes = {config_sha256(each.config, [], only=[], limit=None) for each in (loaded, stated)}
    assert len(hashes) == 1


def test_a_guard_may_be_called_as_often_as_it_stands(tmp_path: Path) -> None:
    """Two texts: once each before the model, and once more for each answer that may come."""
    settings = "  arms: {both: {input: words, output: words}}\nlatency: {warmup: 0}\n"
    path = lay_out(
        tmp_path, f"{settings}prices: {{words: {{per_call: 1}}, model: {{per_call: 1}}}}\n"
    )
    forecasts = {each.part: each for each in check_config(path).forecasts}
    calls = forecasts["words"].calls
    assert (calls.at_least, calls.at_most) == (2, 4)
    calls = forecasts["model"].calls
    assert (calls.at_least, calls.at_most) == (0, 2)


def test_documents_need_a_model(tmp_path: Path) -> None:
    """Leaving a document out means that somebody is asked without it."""
    path = lay_out(tmp_path, "  arms: {both: {context: words}}\n")
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "model:" not in line]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match="model"):
        check_config(path)


def test_the_short_form_shows_each_document() -> None:
    """A name is a guard that is shown every document on its own."""
    arms = "  arms: {a: {context: words}, b: {context: [words, {guard: leaks, each: false}]}}\n"
    config = parse_config(HEAD + arms, folder=Path.cwd(), shown_as="bench.yaml").config
    assert config.pipeline is not None
    one, two = config.pipeline.arms["a"], config.pipeline.arms["b"]
    assert (one.guards_at(), one.shown_all) == ({Place.CONTEXT: ("words",)}, frozenset())
    assert two.guards_at() == {Place.CONTEXT: ("words", "leaks")}
    assert two.shown_all == {"leaks"}


def test_a_list_of_chunks_makes_an_arm_of_each(tmp_path: Path) -> None:
    """With the guards before the model that the arm has; what is resolved can be read again."""
    output = "{guard: leaks, every: [1, 200, all], most_calls: 50}"
    text = f"{HEAD}  arms: {{bare: {{}}, live: {{input: words, output: {output}}}}}\n"
    config = parse_config(text, folder=tmp_path, shown_as="here.yaml").config
    assert config.pipeline is not None
    arms = config.pipeline.arms
    assert list(arms) == ["bare", "live-every-1", "live-every-200", "live-every-all"]
    rules = [arms[name].chunks for name in arms]
    wanted = [ChunkRule(every=size, most_calls=50) for size in (1, 200, None)]
    assert rules == [None, *wanted]
    assert {arms[name].guards_at()[Place.INPUT] for name in arms if name != "bare"} == {("words",)}
    assert Config.model_validate(resolved(config)) == config


def test_check_says_how_often_a_guard_may_be_asked_about_one_answer(tmp_path: Path) -> None:
    """Of four characters: twice by threes, four times by ones, of which the whole is shared."""
    settings = "  arms: {live: {output: {guard: leaks, every: [1, 3]}}}\nlatency: {warmup: 0}\n"
    path = lay_out(tmp_path, f"{settings}prices: {{leaks: {{per_call: 1}}}}\n")
    checkup = check_config(path)
    notes = [each for each in checkup.warnings if "about one answer" in each]
    assert ["at most 4 times" in notes[0], "at most 2 times" in notes[1]] == [True, True]
    (calls,) = (each.calls for each in checkup.forecasts if each.part == "leaks")
    assert (calls.at_least, calls.at_most) == (2, 2 * 4)
