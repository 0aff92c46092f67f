"""Services whose every error is planted, over repeats and in every arm: each figure is counted.

Each record is held against the planted truth, and each figure of `summary.json` against plain loops
over these records. So no figure can differ from a count by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.journeys.command_line import typed, write_rows
from tests.journeys.test_pipeline import counts, number_of, summary_of
from tests.journeys.test_several_judges import compared_with_loops

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

COUNT, REPEATS, SEED = 48, 3, 100
CONFIG = """\
version: 1
name: planted
data: [{{path: data.jsonl, open_categories: true}}]
defenses:
  once: {{type: guard-model, profile: allow-block, base_url: "{url}", model: once}}
  each: {{type: guard-model, profile: allow-block, base_url: "{url}", model: each, temperature: 1}}
  wall: {{type: block-all}}
pipeline:
  guards: [none, once, each, wall]
  model: {{type: chat, base_url: "{url}", model: tutor, temperature: 1, seed: 100}}
  judges:
    - {{type: chat, name: first, base_url: "{url}", model: first, retries: 0}}
    - {{type: chat, name: second, base_url: "{url}", model: second, retries: 0}}
  legacy_cards: [response_unsafe_v1, assistant_policy_v2]
run: {{repeats: 3, on_malformed: allow, on_error: block, malformed_limit: 1.0, concurrency: 4}}
services: {{"{url}": {{retries: 0}}}}
latency: {{warmup: 0}}
stats: {{min_per_category: 5}}
report: [json, md]
"""
BROKEN = (400, "broken")
WORDS = {"B": "block", "A": "allow", "m": "malformed", "e": "error"}
SAID = {"B": "BLOCK: no", "A": "ALLOW", "m": "hmm", "e": BROKEN}


def is_attack(n: int) -> bool:
    """The label of a sample."""
    return n % 2 == 0


def decision(guard: str, n: int) -> str:
    """What a guard decides about a sample: a letter."""
    if guard == "wall":
        return "B"
    return ("BABAmAeABA" if is_attack(n) else "AAAAAmAAeB")[(n // 2 + len(guard)) % 10]


def is_broken(n: int, repeat: int) -> bool:
    """Whether the tutor gives no answer in a repeat."""
    return (n + repeat) % 11 == 3


def verdict(judge: str, n: int, repeat: int) -> tuple[str, str | None]:
    """Label and answer mode that a judge gives."""
    at = (n + 5 * repeat + (7 if judge == "second" and n % 4 == 0 else 0)) % 12
    if at in {4, 9}:
        return ("malformed", None) if at == 4 else ("error", None)
    label = "unsafe" if is_attack(n) and at in {0, 2, 6} else "safe"
    return label, ("refused_or_blocked" if at in {1, 8} else "indirect" if at == 7 else "answered")


class Services:
    """A server of guards, tutor and judges, which counts what it is asked."""

    def __init__(self) -> None:
        self.asked = Counter[tuple[str, int]]()

    def __call__(self, body: dict[str, Any]) -> object:
        """Answer one request as the part that is asked for."""
        said = body["messages"][-1]["content"]
        if body["model"] in {"first", "second"}:
            answer = json.JSONDecoder().raw_decode(said)[0]["answer"]
            return self._judged(body["model"], answer)
        n = number_of(said)
        self.asked[body["model"], n] += 1
        if body["model"] == "tutor":
            repeat = body["seed"] - SEED
            return BROKEN if n >= 0 and is_broken(n, repeat) else f"answer #{n} of {repeat}"
        if n < 0:  # what every guard is asked before a run
            return "ALLOW" if "vegetables" in said else "BLOCK"
        return SAID[decision(body["model"], n)]

    def _judged(self, judge: str, answer: str) -> object:
        n = number_of(answer)
        repeat = int(answer.rsplit(maxsplit=1)[-1]) if n >= 0 else 0
        label, mode = verdict(judge, n, repeat) if n >= 0 else ("unsafe", "answered")
        if label == "error":
            return BROKEN
        said = {"label": label, "answer_mode": mode, "reasons": ["so"]}
        return "Who knows." if label == "malformed" else json.dumps(said)


def truth() -> dict[tuple[str, str, str, int, int], tuple[str, str | None]]:
    """Stage, part, layer, sample and repeat to outcome and answer mode, by construction."""
    found: dict[tuple[str, str, str, int, int], tuple[str, str | None]] = {}
    for n in range(COUNT):
        for repeat in range(REPEATS):
            for guard in ("once", "each", "wall"):
                outcome = WORDS[decision(guard, n)]
                found["defense", guard, "run", n, repeat] = outcome, None
            if is_broken(n, repeat):
                found["model", "none", "run", n, repeat] = "error", None
                continue
            found["model", "none", "run", n, repeat] = "answered", None
            for judge in ("first", "second"):
                found["judge", "none", f"run/{judge}", n, repeat] = verdict(judge, n, repeat)
    return found


def recorded(folder: Path) -> dict[tuple[str, str, str, int, int], tuple[str, str | None]]:
    """The same, as the run wrote it."""
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        (r["stage"], r["defense"], r["layer"], int(r["id"][2:]), r["repeat"]): (
            r["outcome"],
            r.get("answer_mode"),
        )
        for r in rows
    }


async def test_every_figure_is_the_count_of_what_was_planted(
    chat_server: Any, tmp_path: Path
) -> None:
    """Records, then figures, then the same after other judgings became the headline."""
    services = Services()
    chat_server.reply = services
    rows = [
        {
            "id": f"s-{n}",
            "text": f"question #{n} please",
            "label": "attack" if is_attack(n) else "benign",
            "category": ("jailbreak", "sums", "extraction", "school")[n % 4],
            "variant": ("original", "typo")[n // 2 % 2],
            "group": f"g-{n // 4}",
        }
        for n in range(COUNT)
    ]
    write_rows(tmp_path / "data.jsonl", rows)
    config = CONFIG.format(url=chat_server.base_url)
    (tmp_path / "bench.yaml").write_text(config, encoding="utf-8")
    done = await typed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    out = tmp_path / "out"
    assert recorded(out) == truth()
    for n in range(COUNT):
        asked = [services.asked[part, n] for part in ("once", "each", "tutor")]
        assert asked == [1, REPEATS, REPEATS], "what cannot differ is asked once"
    require_counts(out, most_of=None)
    for headline in ("run/second", "run/first"):
        done = await typed("judge", "out", "--as-headline", headline, cwd=tmp_path)
        assert done.code == 0, done.err
        require_counts(out, most_of=headline.partition("/")[2])
    done = await typed("verify", "out", cwd=tmp_path)
    assert done.code == 0, done.out


def require_counts(out: Path, *, most_of: str | None) -> None:
    """Hold the summary against plain loops, and its first figures against the planted truth."""
    comparer = compared_with_loops(out)
    assert [*map(str, comparer.findings)] == []
    assert comparer.compared > 2_000, comparer.compared
    judges = ("first", "second") if most_of is None else (most_of,)
    arms = {arm["name"]: arm for arm in summary_of(out)["pipeline"]["arms"]}
    for name, arm in arms.items():
        unsafe = known = 0
        for n in filter(is_attack, range(COUNT)):
            for repeat in range(REPEATS):
                letter = "A" if name == "none" else decision(name, n)
                labels = {} if is_broken(n, repeat) else _valid(judges, n, repeat)
                is_judged = letter == "A" and labels.get("safe", 0) != labels.get("unsafe", 0)
                known += letter == "B" or is_judged
                unsafe += is_judged and labels.get("unsafe", 0) > labels.get("safe", 0)
        assert counts(arm["system"]["attack_success_rate"]) == (unsafe, known), name


def _valid(judges: tuple[str, ...], n: int, repeat: int) -> dict[str, int]:
    """How many judges say safe and unsafe of an answer."""
    said = Counter(verdict(judge, n, repeat)[0] for judge in judges)
    return {label: said[label] for label in ("safe", "unsafe") if said[label]}
