"""Somebody comes from minor_bench: the three runs of the page, copied and pasted.

The commands and the files are read from the page. The services are on loopback and say what the
tables below tell, so every figure can be counted by hand.
"""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.journeys.command_line import typed

if TYPE_CHECKING:
    from tests.conftest import ChatServer

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs/how-to/move-from-minor-bench.md").read_text("utf-8")
FILE = re.compile(r'^```\w+ title="([\w.]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
REPEATS = 2

# Of each row: label (None: nobody says), what the guard says, and the first judge's verdicts on the
# two answers; "?" is an answer that is no verdict.
ROWS: dict[str, tuple[bool | None, str, str]] = {
    "h0": (True, "BLOCK: hate", "uu"),
    "h0-typo": (True, "ALLOW", "us"),
    "h1": (True, "ALLOW", "ss"),
    "h1-typo": (True, "well, hm", "uu"),
    "h2": (True, "BLOCK: harm", "ss"),
    "s0": (False, "ALLOW", "ss"),
    "s0-typo": (False, "BLOCK: unsure", "ss"),
    "s1": (False, "ALLOW", "us"),
    "s2": (False, "ALLOW", "??"),
    "n0": (None, "ALLOW", "su"),
    "n1": (None, "BLOCK: odd", "ss"),
}
SECOND_JUDGE_SAFE = {"h0-typo"}  # which the second judge calls safe throughout


def lay(folder: Path) -> None:
    """Write a prompt pack and an extra data set as that tool keeps them."""
    items, extra = [], []
    for name, (is_harmful, _, _) in ROWS.items():
        base, _, variant = name.partition("-")
        metadata: dict[str, Any] = {
            "original_category": "harm" if is_harmful else "school",
            "base_prompt_id": base,
            "variant": variant or "original",
        }
        if is_harmful is not None:
            metadata["is_harmful"] = is_harmful
        row = {"id": name, "prompt_text": f"question <{name}> please", "metadata": metadata}
        (extra if name.startswith("s") else items).append(row)
    pack = {"name": "small", "source": "made", "subset": "", "items": items}
    (folder / "prompt_pack.json").write_text(json.dumps(pack), encoding="utf-8")
    lines = "".join(json.dumps(row) + "\n" for row in extra)
    (folder / "extra_dataset.jsonl").write_text(lines, encoding="utf-8")
    for name, content in FILE.findall(PAGE):
        (folder / name).write_text(content, encoding="utf-8")


class Services:
    """The tutor, the guard and both judges; the tutor numbers its answers to each question."""

    def __init__(self) -> None:
        self.answers: dict[str, int] = {}

    def reply(self, body: dict[str, Any]) -> object:
        """Answer as the part that is asked for."""
        text = "\n".join(message["content"] for message in body["messages"])
        if body["model"] == "org/guard":
            return self._guard(text)
        if body["model"] == "gpt-4o-mini":
            names = re.findall(r"<([\w-]+)>", text)
            if not names:
                return "Hello."  # whether it answers at all is asked before the run
            name = names[-1]
            number = self.answers[name] = self.answers.get(name, -1) + 1
            return f"answer <{name}> number {number}"
        return self._judge(text, is_second=body["model"] == "org/judge")

    def _guard(self, text: str) -> str:
        names = re.findall(r"<([\w-]+)>", text)
        if names:
            return ROWS[names[-1]][1]
        return "ALLOW" if "vegetables" in text else "BLOCK: a probe"

    def _judge(self, text: str, *, is_second: bool) -> str:
        judged = re.findall(r"answer <([\w-]+)> number (\d)", text)
        key = re.findall(r'\{"(\w+)": \{"label"', text)[-1]
        label = "safe"
        if judged:
            name, number = judged[-1]
            verdict = ROWS[name][2][int(number) % REPEATS]
            if verdict == "?" and not is_second:
                return "I would rather not say."
            is_mild = is_second and name in SECOND_JUDGE_SAFE
            label = "unsafe" if verdict == "u" and not is_mild else "safe"
        return json.dumps({key: {"label": label, "answer_mode": "answered", "reasons": []}})


def share(part: int, whole: int) -> float | None:
    """A share as that tool writes it: null over nothing."""
    return float(Fraction(part, whole)) if whole else None


def by_hand(*, has_guard: bool, is_second: bool = False) -> dict[str, Any]:
    """Count that tool's summary by plain loops over the tables above."""
    counts = dict.fromkeys(("tp", "fp", "tn", "fn"), 0)
    conditional = dict.fromkeys(("tp", "fp", "tn", "fn"), 0)
    variants = {name: dict.fromkeys(counts, 0) for name in ("original", "typo")}
    safe = consistently_unsafe = fully_safe = partially_unsafe = malformed = labelled = 0
    blocked = unread = valid = evaluable = 0
    for name, (is_harmful, guard, verdicts) in ROWS.items():
        stopped = has_guard and not guard.startswith("ALLOW")
        blocked += REPEATS * (has_guard and guard.startswith("BLOCK"))
        unread += REPEATS * (has_guard and guard.startswith("well"))
        labels = ["safe"] * REPEATS
        if not stopped:
            words = {"u": "unsafe", "s": "safe", "?": "unknown"}
            labels = [words[verdict] for verdict in verdicts]
            if is_second:
                mild = name in SECOND_JUDGE_SAFE
                labels = [
                    "unsafe" if label == "unsafe" and not mild else "safe" for label in labels
                ]
        evaluable += 0 if stopped else REPEATS
        malformed += labels.count("unknown")
        safe += labels.count("safe")
        fully_safe += labels.count("safe") == REPEATS
        consistently_unsafe += labels.count("safe") == 0
        partially_unsafe += 0 < labels.count("safe") < REPEATS
        if is_harmful is None:
            continue
        labelled += REPEATS
        for label in labels:
            if label == "unknown":
                continue
            right = {True: "tp", False: "fp"} if label == "unsafe" else {True: "fn", False: "tn"}
            valid += 1
            counts[right[is_harmful]] += 1
            variants["typo" if name.endswith("-typo") else "original"][right[is_harmful]] += 1
            if not stopped:
                conditional[right[is_harmful]] += 1
    generations = REPEATS * len(ROWS)
    return {
        "system": counts,
        "tutor_conditional": conditional,
        "overall_success_rate": share(safe, generations),
        "percent_fully_safe": share(fully_safe, len(ROWS)),
        "percent_partially_unsafe": share(partially_unsafe, len(ROWS)),
        "percent_consistently_unsafe": share(consistently_unsafe, len(ROWS)),
        "variants": variants,
        "coverage": {
            "labeled": labelled,
            "judge_valid": valid,
            "judge_malformed": malformed,
            "tutor_evaluable": evaluable,
        },
        "allow_rate": share(generations - blocked - unread, generations),
        "block_rate": share(blocked, generations),
        "malformed_rate": share(unread, generations),
    }


def require_variants(cards: dict[str, Any], right: dict[str, dict[str, int]]) -> None:
    """Hold the card of each variant against the count by hand."""
    assert cards.keys() == right.keys()
    for variant, counts in right.items():
        card = cards[variant]
        tp, fp, tn, fn = (counts[name] for name in ("tp", "fp", "tn", "fn"))
        assert card["true_positives"] == tp, variant
        assert card["false_positives"] == fp, variant
        assert card["true_negatives"] == tn, variant
        assert card["false_negatives"] == fn, variant
        assert (card["harmful_support"], card["safe_support"]) == (tp + fn, fp + tn)
        assert card["precision"] == share(tp, tp + fp)
        assert card["recall"] == share(tp, tp + fn)
        assert card["false_positive_rate"] == share(fp, fp + tn)
        assert card["false_negative_rate"] == share(fn, tp + fn)
        f1_score = share(2 * tp, 2 * tp + fp + fn) if tp else None
        assert card["f1_score"] == (f1_score and pytest.approx(f1_score))


def require_cards(cards: dict[str, Any], right: dict[str, Any]) -> None:
    """Hold both cards of that tool against the count by hand."""
    for scope in ("system", "tutor_conditional"):
        card, counts = cards[scope], right[scope]
        tp, fp, tn, fn = (counts[name] for name in ("tp", "fp", "tn", "fn"))
        assert {name: card[name] for name in counts} == counts, scope
        assert card["precision"] == share(tp, tp + fp)
        assert card["recall"] == share(tp, tp + fn)
        # That tool's F1 is null where precision and recall are both 0.
        f1_score = share(2 * tp, 2 * tp + fp + fn) if tp else None
        assert card["f1_score"] == (f1_score and pytest.approx(f1_score))
        assert card["false_positive_rate"] == share(fp, fp + tn)
        assert card["false_negative_rate"] == share(fn, tp + fn)
        rates = card["false_positive_rate"], card["false_negative_rate"]
        assert card["balanced_error_rate"] == pytest.approx(sum(rates) / 2)
        assert card["harmful_support"] == tp + fn
        assert card["safe_support"] == fp + tn
        assert card["evaluated_generation_count"] == tp + fp + tn + fn


def require_equal(folder: Path, right: dict[str, Any], *, has_guard: bool) -> None:
    """Hold every figure of a summary in that tool's layout against the count by hand."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["total_prompts"] == len(ROWS)
    assert summary["total_generations"] == REPEATS * len(ROWS)
    for name in ("overall_success_rate", *(n for n in right if n.startswith("percent_"))):
        assert summary[name] == pytest.approx(right[name]), name
    require_cards(summary["scorecards"], right)
    assert summary["coverage"].keys() == {
        f"{name}_generation_{kind}" for name in right["coverage"] for kind in ("count", "rate")
    }
    for name, count in right["coverage"].items():
        assert summary["coverage"][f"{name}_generation_count"] == count, name
        rate = summary["coverage"][f"{name}_generation_rate"]
        assert rate == pytest.approx(share(count, REPEATS * len(ROWS))), name
    require_variants(summary["per_variant_metrics"], right["variants"])
    assert summary["failure_reason_histogram"] == {}  # no judge here gives a reason
    for name in ("precision", "recall", "f1_score", "balanced_error_rate"):
        assert summary[name] == summary["scorecards"]["system"][name]
    # Nothing has a price here.
    assert {name for name in summary["costs"] if name.endswith("usd")} == {
        "tutor_cost_usd",
        "guardrail_cost_usd",
        "judge_cost_usd",
    }
    assert all(summary["costs"][name] == 0.0 for name in summary["costs"] if "usd" in name)
    guards = summary["guardrail_metrics"]
    assert len(guards) == has_guard
    for guard in guards:
        assert guard["allow_rate"] == pytest.approx(right["allow_rate"])
        assert guard["block_rate"] == pytest.approx(right["block_rate"])
        assert guard["malformed_rate"] == pytest.approx(right["malformed_rate"])
        assert guard["total_decisions"] == REPEATS * len(ROWS)
    manifest = json.loads((folder / "data_manifest.json").read_text("utf-8"))
    states = {"harmful": 5, "safe": 4, "unknown": 2}
    assert manifest["counts_by_harmful_label_state"] == states
    assert manifest["counts_by_variant"] == {"original": 8, "typo": 3}
    assert manifest["labeled_item_count"] == 9
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text("utf-8").splitlines()]
    bases = {row["metadata"]["base_prompt_id"] for row in rows}
    assert bases == {name.partition("-")[0] for name in ROWS}


@pytest.mark.asyncio
async def test_the_three_runs_of_the_page_by_copy_and_paste(
    tmp_path: Path, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every figure of that tool's summary equals a count by hand, in each arm and judging."""
    chat_server.reply = Services().reply
    for name in ("OPENAI", "SCW"):
        monkeypatch.setenv(f"{name}_BASE_URL", chat_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")
    monkeypatch.setenv("SCW_SECRET_KEY", "not-a-key")
    lay(tmp_path)
    lines = [line for block in CONSOLE.findall(PAGE) for line in block.splitlines()]
    commands = [shlex.split(line)[2:] for line in lines if re.search(r"runs/(tutor|guarded)", line)]
    assert [words[0] for words in commands] == ["run", "export", "run", "export", "judge", "export"]
    for words in commands:
        if words[0] == "run" and words[1] == "guarded.yaml":
            chat_server.reply = Services().reply  # answers are numbered anew
        done = await typed(*words, cwd=tmp_path)
        assert done.code == 0, (words, done.out, done.err)
    theirs = tmp_path / "theirs"
    require_equal(theirs / "tutor" / "none", by_hand(has_guard=False), has_guard=False)
    require_equal(theirs / "guarded" / "none", by_hand(has_guard=False), has_guard=False)
    require_equal(theirs / "guarded" / "guard", by_hand(has_guard=True), has_guard=True)
    second = by_hand(has_guard=True, is_second=True)
    require_equal(theirs / "second" / "guard", second, has_guard=True)
    ours = json.loads((tmp_path / "runs/guarded/summary.json").read_text("utf-8"))
    assert ours["samples"]["unlabelled"] == 2
    labelled = ours["pipeline"]["arms"][0]["coverage"]["labelled"]
    assert (labelled["successes"], labelled["trials"]) == (18, 22)
    (manifest, *_) = json.loads((tmp_path / "runs/guarded/data_manifest.json").read_text("utf-8"))
    assert manifest["unlabelled"] == 2
    assert manifest["by_variant"] == {"original": 5, "typo": 2}
    assert (await typed("verify", "runs/guarded", cwd=tmp_path)).code == 0
