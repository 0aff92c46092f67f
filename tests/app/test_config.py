"""A configuration file: every mistake at once, with its place and the next step."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from guardmark.app.adapt.adapting import AdaptOptions, adapt
from guardmark.app.data import get_public
from guardmark.app.parts.building import Rebuild, build_defenses, build_parts, concurrency_of
from guardmark.app.parts.loading import (
    config_sha256,
    load_config,
    load_data,
    parse_config,
    require_gate,
)
from guardmark.app.preflight import check_config
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.core.errors import ConfigError
from guardmark.store.reader import RecordReader, RunState

GOOD = """\
version: 1
data:
  - {builtin: core}
defenses:
  words: {type: pattern, patterns: ["ignore"]}
"""


def mistakes_in(text: str) -> list[str]:
    """The lines a person would read."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, folder=Path(), shown_as="bench.yaml")
    return str(caught.value).splitlines()


def test_a_good_configuration_is_taken_with_defaults_filled_in() -> None:
    """The shortest file that measures something."""
    loaded = parse_config(GOOD, folder=Path(), shown_as="bench.yaml")
    assert loaded.config.run.seed == 7
    assert ("defenses", "words") in loaded.parts


def test_an_unknown_key_is_named_with_line_column_and_a_hint() -> None:
    """A typo in a key must not be passed over in silence."""
    (line,) = mistakes_in(GOOD + "runn: {seed: 1}\n")
    assert line.startswith("bench.yaml:6:1: ")
    assert "'runn'" in line
    assert "Did you mean 'run'?" in line


def test_a_typo_inside_a_defense_is_found_where_it_stands() -> None:
    """Settings of a part are checked against its own type."""
    (line,) = mistakes_in(GOOD.replace("patterns:", "pattern:"))
    assert line.startswith("bench.yaml:5:26: ")
    assert "Did you mean 'patterns'?" in line


def test_an_unknown_type_of_defense_lists_the_known_ones() -> None:
    """A name that is not registered is met with a suggestion."""
    (line,) = mistakes_in(GOOD.replace("type: pattern", "type: patern"))
    assert "Did you mean 'pattern'?" in line


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody wants to run a check five times to find five typos."""
    lines = mistakes_in(
        "version: 2\ndata:\n  - {path: a.jsonl, lable: attack}\ndefenses:\n  w: {type: nothing}\n"
        "stats: {confidence: 1.5}\n"
    )
    assert len(lines) == 4
    assert {line.split(":")[1] for line in lines} == {"1", "3", "5", "6"}


def test_a_key_that_stands_twice_is_refused() -> None:
    """YAML would silently let the last one win."""
    (line,) = mistakes_in(GOOD + "version: 1\n")
    assert line.startswith("bench.yaml:6:1: ")
    assert "twice" in line


@pytest.mark.parametrize(
    "text", ["", "- 1\n", "just words\n", "data: [\n", "a: !!python/object:os.system {}\n"]
)
def test_what_is_no_configuration_is_said_to_be_none(text: str) -> None:
    """Neither an empty file nor YAML tricks get past the door."""
    lines = mistakes_in(text)
    assert 1 <= len(lines) <= 5
    assert all("Traceback" not in line for line in lines)


def test_a_data_set_needs_one_origin() -> None:
    """A path and a built-in set at once is a contradiction."""
    (line,) = mistakes_in(GOOD.replace("{builtin: core}", "{builtin: core, path: a.jsonl}"))
    assert "needs one of path" in line


def test_a_guard_of_a_pipeline_must_be_a_defense() -> None:
    """An arm that names nothing would silently not be run."""
    lines = mistakes_in(GOOD + "pipeline:\n  guards: [none, word]\n  model: {type: scripted}\n")
    assert any("'word'" in line and "Did you mean 'words'?" in line for line in lines)


def test_open_latency_needs_a_rate() -> None:
    """Planned send times cannot be planned without one."""
    (line,) = mistakes_in(GOOD + "latency: {mode: open}\n")
    assert "rate" in line


def test_a_missing_file_says_how_to_start_one(tmp_path: Path) -> None:
    """The next step stands in the message."""
    with pytest.raises(ConfigError, match="guardmark init"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_not_utf8_is_said_so(tmp_path: Path) -> None:
    """A Latin-1 file must not end in a traceback."""
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: caf\xe9\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(path)


def test_every_part_may_state_its_version() -> None:
    """A vendor's release belongs in the report, whatever the type of the defense."""
    loaded = parse_config(
        GOOD.replace("type: pattern,", 'type: pattern, version: "3.10",'),
        folder=Path(),
        shown_as="bench.yaml",
    )
    plain = parse_config(GOOD, folder=Path(), shown_as="bench.yaml")
    (built,) = build_defenses(loaded, None)
    (unstated,) = build_defenses(plain, None)
    assert built.manifest.version == "3.10"
    assert unstated.manifest.version.startswith("guardmark ")
    assert built.manifest.fingerprint != unstated.manifest.fingerprint


def test_the_version_of_what_is_not_ours_is_not_made_up() -> None:
    """Our own version would say nothing of a service."""
    text = GOOD.replace(
        'words: {type: pattern, patterns: ["ignore"]}', "any: {type: python, target: json:loads}"
    )
    loaded = parse_config(text, folder=Path(), shown_as="bench.yaml")
    assert build_defenses(loaded, None)[0].manifest.version == ""


def test_a_function_of_a_package_has_the_version_of_the_package() -> None:
    """The package knows it, so nobody has to state it."""
    python = "any: {type: python, target: click.utils:echo}"
    text = GOOD.replace('words: {type: pattern, patterns: ["ignore"]}', python)
    loaded = parse_config(text, folder=Path(), shown_as="bench.yaml")
    assert build_defenses(loaded, None)[0].manifest.version == f"click {version('click')}"


def test_a_version_that_yaml_reads_as_a_number_is_a_mistake() -> None:
    """Version 3.10 without quotes would be stored as 3.1."""
    (line,) = mistakes_in(GOOD.replace("type: pattern,", "type: pattern, version: 3.10,"))
    assert line.startswith("bench.yaml:5:26: defenses.words.version: is not text, found 3.1.")
    assert "quotes" in line


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ("lang: {en: 0.9}", "no facet is called 'lang'. Did you mean 'language'?"),
        ("language: {en: 0.9, de: 0.4}", "the shares of language add to 1.3, more than 1"),
        ("length: {short: 0.9}", "'short' is not a band of characters"),
    ],
)
def test_a_mix_that_cannot_be_used_is_found_before_the_run(mix: str, said: str) -> None:
    """A run must not be paid for before its report turns out to be impossible."""
    lines = mistakes_in(GOOD + f"stats:\n  deployment_mix: {{{mix}}}\n")
    assert lines[0].startswith("bench.yaml:7:3: stats.deployment_mix: ")
    assert said in lines[0]


def test_a_builtin_set_refuses_what_would_be_passed_over() -> None:
    """A label or a hash stated for a built-in set would have no effect, so it is an error."""
    (line,) = mistakes_in(GOOD.replace("builtin: core", "builtin: core, label: attack"))
    assert line.startswith("bench.yaml:3:")
    assert "label would be ignored" in line


def test_a_variant_cannot_be_both_included_and_excluded() -> None:
    """One of the two would win in silence."""
    both = "include_variants: [typo], exclude_variants: [typo]"
    (line,) = mistakes_in(GOOD.replace("builtin: core", f"builtin: core, {both}"))
    assert "'typo' is both included and excluded" in line


def test_variants_of_a_builtin_set_can_be_chosen() -> None:
    """By naming those to take, or those to leave out."""

    def variants(chosen: str) -> set[str]:
        text = GOOD.replace("builtin: core", f"builtin: tutor, {chosen}")
        loaded = load_data(parse_config(text, folder=Path(), shown_as="bench.yaml"))
        return {sample.variant for sample in loaded.samples()}

    assert variants("include_variants: [original, typo]") == {"original", "typo"}
    assert variants("exclude_variants: [original, typo]") == {"camouflage", "adversarial"}


ALONE = """\
version: 1
data: [{builtin: tutor}]
pipeline:
  model: {type: scripted, otherwise: "No."}
  judges: [{type: rules, name: rules, unsafe: ["here is how"]}]
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ALONE + "gate: {asr_upper: 0.1}", "The gate checked nothing"),
        (GOOD + "gate: {system.asr_upper: 0.1}", "asked no target model"),
        (GOOD + "gate: {judge.min_agreement: 0.8}", "asked no target model"),
        (GOOD + "gate: {asr_upper: 0.1, defenses: [word]}", "Did you mean 'words'?"),
    ],
)
def test_a_gate_with_nothing_to_check_is_refused_before_the_run(
    text: str, told: str, tmp_path: Path
) -> None:
    """Else it is paid for, and then has no report."""
    config = tmp_path / "bench.yaml"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(told)):
        check_config(config)
    with pytest.raises(ConfigError, match=re.escape(told)):
        run(load_config(config), RunOptions(out=tmp_path / "out"), Session())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        ALONE + "gate: {system.asr_upper: 0.1}",
        ALONE + "gate: {regression_margin: 0.1}",
        ALONE + "gate: {system.asr_upper: 0.1, defenses: [none]}",
        GOOD + "gate: {asr_upper: 0.1, system: {}, defenses: [words]}",
    ],
)
def test_a_gate_with_something_to_check_is_taken(text: str) -> None:
    """A limit on the system needs no guard; one against a baseline is for later."""
    config = parse_config(text, folder=Path(), shown_as="bench.yaml").config
    require_gate(config, list(config.defenses))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (("--help",), ("numpy", "scipy", "aiohttp")),
        (("check", "bench.yaml"), ("numpy", "scipy", "aiohttp")),
        (("data", "hash", "builtin:core"), ("numpy", "scipy", "aiohttp")),
        (("run", "bench.yaml"), ("aiohttp", "urllib.request", "guardmark.adaptive.search")),
    ],
    ids=lambda each: each[0],
)
def test_commands_load_only_what_they_use(
    words: tuple[str, ...], unwanted: tuple[str, ...], tmp_path: Path
) -> None:
    """No figures, no numpy; no service, no client; no attacks, no search: imports take time."""
    (tmp_path / "bench.yaml").write_text(GOOD, encoding="utf-8")
    program = (
        "import sys; from guardmark.cli import main\n"
        f"try: main({list(words)!r})\n"
        f"finally: print([m for m in {unwanted!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_chain_that_nests_without_end_is_refused() -> None:
    """Deeper than Python goes."""
    links = [f"  c{at}: {{type: chain, of: [c{at + 1}]}}" for at in range(400)]
    last = "  c400: {type: pattern, patterns: [ignore]}"
    text = "\n".join(["version: 1", "data: [{builtin: core}]", "defenses:", *links, last])
    loaded = parse_config(text, folder=Path.cwd(), shown_as="chains.yaml")
    with pytest.raises(ConfigError, match=r"the chain c93 -> .* -> c101 has more than 100 links"):
        build_defenses(loaded, None)


def test_a_chain_of_a_defense_that_is_not_there_is_told_where_it_stands() -> None:
    """With the line, and the name that was meant."""
    text = GOOD.rstrip() + "\n  all: {type: chain, of: [wrds]}\n"
    loaded = parse_config(text, folder=Path.cwd(), shown_as="chain.yaml")
    with pytest.raises(ConfigError, match=r"chain\.yaml:\d+:\d+.*Did you mean 'words'"):
        build_defenses(loaded, None)


def test_a_headline_that_no_judge_gives_is_told_where_it_stands() -> None:
    """The judgings that there will be are known before the run."""
    loaded = parse_config(ALONE + "  headline: judge/rulez\n", folder=Path(), shown_as="bench.yaml")
    with pytest.raises(ConfigError, match=r"bench\.yaml:6:\d+.*rulez"):
        build_parts(loaded, None)


def test_ctrl_c_while_a_defense_is_built_ends_the_command(tmp_path: Path) -> None:
    """It is no fault of the defense; what calls sys.exit is one, and is named."""
    for name, code in (("stop", "raise KeyboardInterrupt"), ("leave", "raise SystemExit(0)")):
        (tmp_path / f"{name}.py").write_text(f"{code}\n", encoding="utf-8")
    text = "version: 1\ndata: [{builtin: core}]\ndefenses: {guard: {type: python, target: %s}}\n"
    built = [
        parse_config(text % f"{name}.py:decide", folder=tmp_path, shown_as="bench.yaml")
        for name in ("stop", "leave")
    ]
    with pytest.raises(KeyboardInterrupt):
        build_defenses(built[0], None)
    with pytest.raises(ConfigError, match="guard raised SystemExit while it was built: 0"):
        build_defenses(built[1], None)


def test_a_defense_is_not_rebuilt_where_it_would_be_another_one() -> None:
    """A worker elsewhere with other files or another guardmark would measure something else."""
    loaded = parse_config(GOOD, folder=Path(), shown_as="bench.yaml")
    (words,) = build_defenses(loaded, None)
    same = Rebuild(loaded=loaded, name="words", manifest=words.manifest)
    assert same().manifest == words.manifest
    other = replace(words.manifest, fingerprint="0" * 64)
    with pytest.raises(ConfigError, match=r"words is another one here: hash .*, not 000000000000;"):
        replace(same, manifest=other)()
    with pytest.raises(ConfigError, match=r"guardmark .*, not 0\.0\.1"):
        replace(same, version="0.0.1")()


def _hash(more: str) -> str:
    text = (
        "version: 1\ndata: [{builtin: tutor}]\ndefenses: {words: {type: pattern, keywords: [x]}}\n"
    )
    text += "pipeline:\n  model: {type: scripted}\n  guards: [none, words]\n" + more
    config = parse_config(text, folder=Path(), shown_as="bench.yaml").config
    return config_sha256(config, [], only=(), limit=None)


def test_only_what_changes_answers_changes_the_hash_of_a_configuration() -> None:
    """Guards asked at every repeat do; the machines that ask, and the defaults spelled out, do not."""
    plain = _hash("")
    assert _hash("run: {repeat_guards: false}") == plain
    assert _hash("  deterministic: []\n") == plain
    assert _hash("run: {engine: ray, workers: 2}") == plain
    others = [plain, _hash("run: {repeat_guards: true}"), _hash("  deterministic: [words]\n")]
    assert len(set(others)) == 3


@pytest.mark.parametrize(("gate", "found"), [("[asr_upper]", "a list"), ("0.1", "0.1")])
def test_a_gate_that_is_no_map_is_a_mistake_with_its_place(gate: str, found: str) -> None:
    """Nothing is made of it."""
    said = f"bench.yaml:6:1: gate: must be settings, found {found}."
    assert mistakes_in(f"{GOOD}gate: {gate}") == [said]


def test_a_configuration_that_measures_nothing_is_refused() -> None:
    """Data alone are no run."""
    (mistake,) = mistakes_in("version: 1\ndata: [{builtin: core}]\n")
    assert "names nothing to measure: add defenses or a pipeline" in mistake


def test_calls_in_flight_are_told_by_the_names_of_the_parts_that_make_them() -> None:
    """A judge without a name is called by its number, and a service says it for all below it."""
    judge = "{type: chat, base_url: 'http://there/v1', model: m, rubric: r.txt}"
    text = ALONE.replace("judges: [", f"judges: [{judge}, ") + (
        "services: {'http://there/': {concurrency: 3}}\n"
        "defenses: {guard: {type: http, url: 'http://there/x', body: {}, blocked: $.b}}\n"
    )
    loaded = parse_config(text, folder=Path(), shown_as="bench.yaml")
    assert concurrency_of(loaded) == {"judge-1": 3, "guard": 3}


def test_single_calls_are_not_timed_on_a_cluster(tmp_path: Path) -> None:
    """It asks batches; the command ends before any worker starts, and says both ways out."""
    text = GOOD + "latency: {mode: isolated}\nrun: {engine: ray, workers: 2}\n"
    loaded = parse_config(text, folder=tmp_path, shown_as="bench.yaml")
    with pytest.raises(ConfigError, match="Latency mode isolated times single calls") as refused:
        run(loaded, RunOptions(out=tmp_path / "out"), Session())
    assert "set latency.mode to loaded, or run.engine to local" in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_a_cluster_without_its_library_is_told_before_the_run(tmp_path: Path) -> None:
    """With the extra that brings it, on every machine; no folder is left behind."""
    text = GOOD + "latency: {mode: loaded}\nrun: {engine: ray, workers: 2}\n"
    loaded = parse_config(text, folder=tmp_path, shown_as="bench.yaml")
    with pytest.raises(ConfigError, match=r"run\.engine is ray, and Ray is not installed") as told:
        run(loaded, RunOptions(out=tmp_path / "out"), Session())
    assert "pip install 'guardmark[ray]'" in str(told.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["sweet:core", "suite:of:core"])
def test_a_name_of_no_kind_of_public_data_says_where_they_are_listed(name: str) -> None:
    """Nothing is fetched."""
    with pytest.raises(ConfigError, match=f"'{name}' names no public data.\nNext: .* data list"):
        get_public(name, {}, lambda _line: None)


def test_an_attack_that_is_stopped_in_its_run_attacks_nothing(tmp_path: Path) -> None:
    """The run is kept as far as it came, and the same command goes on with it."""
    loaded = parse_config(GOOD, folder=tmp_path, shown_as="bench.yaml")
    stopped = Session()
    stopped.stop.set()
    given = AdaptOptions(budget=4, run=RunOptions(out=tmp_path / "out"))
    adapted = adapt(loaded, stopped, given)
    assert (adapted.defenses, adapted.summary, adapted.trace) == ((), None, None)
    with RecordReader(adapted.folder.records) as reader:
        assert reader.status().state is not RunState.COMPLETE
        assert not reader.layer_settings("adaptive")
