"""A file that names models of an attack: what of it counts for somebody else's configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conftest import ChatServer
from tests.journeys.command_line import few_rows, write_rows

from guardmark.app.adapt.adapting import AdaptOptions, adapt
from guardmark.app.adapt.attacker import attacker_config, build_attacker, is_configuration
from guardmark.app.parts.loading import LoadedConfig, parse_config
from guardmark.app.run.running import RunOptions, Session
from guardmark.core.errors import ConfigError

GUARD = """\
version: 1
data: [{builtin: core}]
defenses: {words: {type: pattern, patterns: [ignore]}}
services: {'http://guard/': {rate: 3/s}}
"""
SCRIPTED = "{type: scripted, otherwise: nothing}"


@pytest.fixture
def guard(tmp_path: Path) -> LoadedConfig:
    """The configuration that is attacked."""
    return parse_config(GUARD, folder=tmp_path, shown_as="guard.yaml")


def written(folder: Path, text: str) -> Path:
    """A file in a folder of its own, beside which its certificates lie."""
    (folder / "own").mkdir()
    path = folder / "own" / "attacker.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_certificates_are_looked_for_beside_the_file_that_names_them(
    guard: LoadedConfig, tmp_path: Path
) -> None:
    """Services of both files hold; those without a certificate are as they were."""
    text = f"adaptive: {{attacker: {SCRIPTED}}}\nservices:\n"
    text += "  'https://one/': {ca_file: ca.pem}\n  'https://two/': {rate: 1/s}\n"
    path = written(tmp_path, text)
    services = attacker_config(guard, path).loaded.config.services
    assert list(services) == ["http://guard/", "https://one/", "https://two/"]
    assert services["https://one/"].ca_file == str(path.parent / "ca.pem")
    assert services["https://two/"].ca_file is None
    assert services["http://guard/"] == guard.config.services["http://guard/"]


def test_a_whole_configuration_may_name_the_attacker_of_another(
    guard: LoadedConfig, tmp_path: Path
) -> None:
    """Its section counts, its defenses do not; without a section it names nobody."""
    other = GUARD.replace("words", "letters")
    path = written(tmp_path, f"{other}adaptive: {{attacker: {SCRIPTED}, depth: 2}}\n")
    config = attacker_config(guard, path)
    assert list(config.loaded.config.defenses) == ["words"]
    assert config.section.depth == 2
    assert build_attacker(config, None) is not None
    path.write_text(other, encoding="utf-8")
    with pytest.raises(ConfigError, match="names no attacker model"):
        attacker_config(guard, path)


@pytest.mark.parametrize(("history", "is_asked"), [(0, False), (1, True)])
def test_a_critic_that_nobody_asks_is_warned_of(
    guard: LoadedConfig, tmp_path: Path, history: int, *, is_asked: bool
) -> None:
    """It guesses how near earlier candidates were, and none of them is shown."""
    critic = "{type: scripted, otherwise: near}"
    section = f"{{attacker: {SCRIPTED}, critic: {critic}, history: {history}}}"
    path = written(tmp_path, f"adaptive: {section}\n")
    attacker = build_attacker(attacker_config(guard, path), None)
    assert attacker is not None
    said = "the critic is not asked: with history: 0 no earlier candidate is shown"
    assert (said in attacker.warnings) is not is_asked


async def test_a_judge_that_calls_nothing_unsafe_is_warned_of_before_an_attack(
    chat_server: ChatServer, tmp_path: Path
) -> None:
    """What a target model says to a rewritten attack would look harmless, whatever it is."""
    chat_server.reply = lambda _body: '{"label": "safe", "answer_mode": "answered"}'
    write_rows(tmp_path / "data.jsonl", few_rows(4))
    judge = f"{{type: chat, name: mild, base_url: '{chat_server.base_url}', model: m}}"
    text = GUARD.replace("{builtin: core}", "{path: data.jsonl}")
    text += f"pipeline: {{guards: [words], model: {SCRIPTED}, judges: [{judge}]}}\n"
    loaded = parse_config(text, folder=tmp_path, shown_as="guard.yaml")
    said: list[str] = []
    given = AdaptOptions(budget=4, run=RunOptions(out=tmp_path / "out"))
    session = Session(announce=said.append)
    adapted = await asyncio.to_thread(adapt, loaded, session, given)
    assert adapted.defenses == ("words",)
    at = next(n for n, line in enumerate(said) if line.startswith("Target model: scripted; asked"))
    assert said[at + 1].startswith("Note: ")
    assert "mild" in said[at + 1]


FORMS = {
    "as people write it": "version: 1\ndata: [{builtin: core}]\n",
    "JSON, which is YAML": '{"version": 1, "data": [{"builtin": "core"}]}',
    "a quoted key": '"version": 1\n',
    "one line": "{version: 1, data: []}",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_configuration_is_known_however_it_is_written(form: str, tmp_path: Path) -> None:
    """One in JSON was taken for a file of an attacker: `adapt RUN --config` asked for --config."""
    (tmp_path / "bench.yaml").write_text(FORMS[form])
    assert is_configuration(tmp_path / "bench.yaml")


@pytest.mark.parametrize(
    "text", ["adaptive:\n  prompt: |\n    version: 2\n", "# version: 1\n", "- version: 1\n"]
)
def test_a_version_that_stands_elsewhere_makes_no_configuration(text: str, tmp_path: Path) -> None:
    """Only a key of the file itself counts: not one within a text, a comment or a list."""
    (tmp_path / "attacker.yaml").write_text(text)
    assert not is_configuration(tmp_path / "attacker.yaml")
