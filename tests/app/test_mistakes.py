"""What is wrong with settings: one line a mistake, in the order of the file, in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from guardmark.app.parts.loading import parse_config
from guardmark.core.errors import ConfigError

HTTP = """\
version: 1
data: [{builtin: core}]
defenses:
  guard:
    type: http
    url: http://localhost:1/check
    body: {input: {$input: text}}
    blocked: "$.flagged"
"""


def mistakes_in(text: str) -> list[str]:
    """The lines a person would read."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, folder=Path(), shown_as="bench.yaml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("run: {concurrency: many}", "run.concurrency: must be a whole number, found 'many'."),
        ("run: {seed: 1.5}", "run.seed: must be a whole number, found 1.5."),
        ("latency: [1]", "latency: must be settings, found a list."),
        (
            "stats: {prevalence: {a: 0.1}}",
            "stats.prevalence: must be a list: put `- ` before each entry, or [ ] around one alone.",
        ),
        ("stats: {prevalence: 0.1}", "stats.prevalence: must be a list, found 0.1."),
        (
            "run: {workers: proceses}",
            (
                "run.workers: must be 'inline', 'threads' or 'processes', found 'proceses'."
                " Did you mean 'processes'?"
            ),
        ),
        (
            f"stats: {{prevalence: [{', '.join(['0.1'] * 101)}]}}",
            "stats.prevalence: must have at most 100 entries, found 101.",
        ),
        (f"name: {'n' * 81}", "name: must have at most 80 characters, found 81."),
        ('name: ""', "name: must not be empty."),
        ("run: {repeats: 0}", "run.repeats: must be greater than or equal to 1, found 0."),
    ],
)
def test_a_mistake_says_what_must_stand_there_and_what_does(setting: str, said: str) -> None:
    """Nobody should have to know the library that checks the settings."""
    (line,) = mistakes_in(f"{HTTP}{setting}\n")
    assert line == f"bench.yaml:9:{line.split(':')[2]}: {said}"


def test_a_setting_that_may_be_one_of_several_things_is_wrong_once() -> None:
    """A header is text or a variable's name; a list is neither, and that is one mistake."""
    (line,) = mistakes_in(f"{HTTP}    headers: {{X-Mode: [1, 2]}}\n")
    assert line == ("bench.yaml:9:15: defenses.guard.headers.X-Mode: must be text or {env: NAME}.")


def test_of_several_things_the_one_that_was_begun_is_meant() -> None:
    """Settings were written, so a mistake in them is told, and not that they are no text."""
    missing, unknown = mistakes_in(f"{HTTP}    headers: {{X-Mode: {{envv: NAME}}}}\n")
    assert missing.endswith("'defenses.guard.headers.X-Mode.env' is missing.")
    assert unknown.endswith(
        "no setting is called 'defenses.guard.headers.X-Mode.envv'. Did you mean 'env'?"
    )
    (rule,) = mistakes_in(f"{HTTP}    blocked_when: {{at_leasst: 1}}\n")
    assert rule.endswith("'defenses.guard.blocked_when.at_leasst'. Did you mean 'at_least'?")


@pytest.mark.parametrize("setting", ["api_key: 8315", "headers: {X-Token: 8315}"])
def test_what_may_be_a_secret_is_never_printed(setting: str) -> None:
    """A key in the wrong place would end up in the log of a build."""
    (line,) = mistakes_in(f"{HTTP}    {setting}\n")
    assert "{env: NAME}" in line
    assert "8315" not in line


def test_mistakes_come_in_the_order_of_the_file() -> None:
    """So they can be mended from top to bottom."""
    lines = mistakes_in(
        HTTP.replace(
            "    blocked", "    max_chars: x\n    method: GET\n    headers: 1\n    blocked"
        )
    )
    places = [int(line.split(":")[1]) for line in lines]
    assert places == [8, 9, 10]


def test_characters_and_aliases_that_no_configuration_needs_are_mistakes() -> None:
    """A NUL, and aliases of aliases that come to a hundred million values."""
    assert mistakes_in("version: 1\nname: \0") == [
        "bench.yaml:2: is not YAML: it holds a character (code 0) that YAML does not allow."
    ]
    laughs = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{below}: &{below} [{','.join([f'*{above}'] * 10)}]\n"
        for above, below in zip("abcdefg", "bcdefgh", strict=True)
    )
    (said,) = mistakes_in(laughs)
    assert "it comes to more than 200,000 values" in said


def test_more_calls_in_flight_than_a_machine_holds_are_a_mistake() -> None:
    """Ten thousand took 827 MB."""
    (said,) = mistakes_in(HTTP + "run: {concurrency: 10000}")
    assert "run.concurrency" in said
