"""The field study: its entries, what cannot be installed, and the way from a package to the page."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
import study

from guardmark.analysis.cards.consistency import contradictions_of
from guardmark.app.results.cards import read_card

STUDY = Path(__file__).resolve().parents[2] / "examples" / "field-study"

GUARDS = study.read_guards(STUDY / "guards")


def test_there_are_at_least_twenty_guards() -> None:
    """Fewer would be no study of the field."""
    assert len({guard.package for guard in GUARDS}) >= 20


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_is_locked_and_its_worker_is_short(guard: study.Guard) -> None:
    """What is installed is the version that the entry names, by hash."""
    folder = STUDY / "guards" / guard.name
    if guard.registry == "npm":
        lock, worker = folder / "package-lock.json", folder / "worker.mjs"
        locked, proof = f'"{guard.package}": "{guard.version}"', '"integrity": "sha512-'
    else:
        lock, worker = folder / "requirements.lock", folder / "worker.py"
        locked, proof = f"{guard.package}=={guard.version}", "--hash=sha256:"
    text = lock.read_text(encoding="utf-8")
    assert locked in text
    assert proof in text
    assert "://" not in text
    assert len(worker.read_text(encoding="utf-8").splitlines()) <= 30


def wheel(folder: Path) -> str:
    """Write a guard as a package; return what locks it."""
    files = {
        "toy_guard.py": 'def flagged(text):\n    return "instructions" in text\n',
        "toy_guard-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy-guard\nVersion: 1.0\n",
        "toy_guard-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip('=')},{len(text)}\n"
        for name, text in files.items()
    )
    path = folder / "toy_guard-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as file:
        for name, text in {**files, "toy_guard-1.0.dist-info/RECORD": record}.items():
            file.writestr(name, text)
    return f"toy-guard==1.0 --hash=sha256:{sha256(path.read_bytes()).hexdigest()}\n"


def entry(folder: Path, name: str, lock: str) -> None:
    """Write an entry of the study."""
    (folder / name).mkdir(parents=True)
    (folder / name / "guard.toml").write_text(
        'package = "toy-guard"\nversion = "1.0"\nregistry = "pypi"\nlicence = "MIT"\n'
        'kind = "rules"\npurpose = "injection"\ndecides = "flagged"\nclaim = "Finds a word."\n'
        'source = "this test"\n'
    )
    (folder / name / "requirements.lock").write_text(lock)
    (folder / name / "worker.py").write_text(
        "from toy_guard import flagged\n\n\ndef check(text):\n    return flagged(text)\n"
    )


@pytest.mark.slow
def test_what_cannot_be_installed_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One package is there, another is not what was locked: the first is measured, both are told."""
    packages, cache, page = tmp_path / "packages", tmp_path / "cache", tmp_path / "page.md"
    packages.mkdir()
    guards = tmp_path / "guards"
    lock = wheel(packages)
    entry(guards, "sound", lock)
    entry(guards, "changed", lock.partition("sha256:")[0] + f"sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(packages))
    cards, board = tmp_path / "cards", tmp_path / "board"
    folders = ["--cache", cache, "--guards", guards, "--public", tmp_path, "--page", page]
    folders += ["--cards", cards, "--board", board]
    assert study.main([*map(str, folders), "--attack", "sound"]) == 0
    card = read_card(cards / "core" / "sound.card.json")
    assert card.run.again == "make field-study"
    assert len((cards / "core" / "sound.card.json").read_text("utf-8").splitlines()) == 1
    assert "sound" in (board / "index.html").read_text("utf-8")
    told = page.read_text(encoding="utf-8")
    assert "| sound | " in told
    assert "769 attacks, 721 benign texts" in told
    assert "| guard | attacks | as they are | after 16 tries | after 64 tries | area |" in told
    assert "\n| sound | 21 | 100.0 % [" in told
    assert "- changed: python ended with 1: " in told
    assert "| toy-guard | 1.0 | MIT | rules | flagged | Finds a word. |" in told
    assert "sound 1.0: installed" in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_installed_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a guard there is no page."""
    guards = tmp_path / "guards"
    entry(guards, "missing", f"toy-guard==9.9 --hash=sha256:{'0' * 64}\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    page = tmp_path / "page.md"
    folders = ["--cache", tmp_path / "cache", "--guards", guards, "--page", page]
    folders += ["--cards", tmp_path / "cards", "--board", tmp_path / "board"]
    assert study.main([*map(str, folders)]) == 1
    assert not page.exists()


def test_the_cards_that_are_kept_are_sound_and_name_no_place_of_a_machine() -> None:
    """Each agrees with itself; one stands for each guard and kind of data."""
    paths = sorted((STUDY.parents[1] / "docs" / "field-study" / "cards").rglob("*.card.json"))
    assert {path.parent.name for path in paths} == {"core", "public", "words"}
    assert {path.name.removesuffix(".card.json") for path in paths} == {
        each.name for each in GUARDS
    }
    for path in paths:
        card = read_card(path)
        assert contradictions_of(card) == ()
        assert card.run.again == "make field-study"
        text = path.read_text(encoding="utf-8")
        assert not any(place in text for place in ('"/home', '"/root', '"/tmp', '"/work', "C:\\"))


def test_public_rows_are_drawn_in_whole_groups_by_purpose(tmp_path: Path) -> None:
    """A request that is merely harmful fits no purpose; of equal texts of a group one is kept."""
    rows = [
        '{"id": "a", "text": "one", "is_attack": true, "kind": "attack", "group": "g", "category": "jailbreak"}',
        '{"id": "b", "text": "one", "is_attack": true, "kind": "attack", "group": "g", "category": "jailbreak"}',
        '{"id": "c", "text": "two", "is_attack": true, "kind": "harmful_request", "group": "h", "category": null}',
        '{"id": "d", "text": "hi", "is_attack": false, "kind": "benign", "group": "i", "category": null}',
    ]
    (tmp_path / "openai_guardrails_demo.jsonl").write_text("\n".join(rows) + "\n")
    paths = study.write_public(tmp_path, tmp_path / "cache")
    assert list(paths) == ["injection"]
    drawn = paths["injection"].read_text(encoding="utf-8").splitlines()
    assert [line.partition('"text": ')[2][:6] for line in drawn] == ['"one",', '"hi", ']
