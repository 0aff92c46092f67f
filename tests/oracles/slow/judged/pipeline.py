"""A pipeline counted a second time: its arms under every judging, its judges, its people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.formulas.paired import difference, marked
from tests.oracles.slow.formulas.rates import Trial, rate
from tests.oracles.slow.judged.cards import NO_GUARD, USUAL, ArmCount, Case
from tests.oracles.slow.judged.judges import (
    JUDGED,
    Bench,
    place_of,
    read_benches,
    read_people,
    recount_bench,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.oracles.slow.judged.judges import Place
    from tests.oracles.slow.source import Answer, Source

Json = dict[str, Any]
Places = dict[tuple[int, int], "Answer"]


def recount_pipeline(source: Source) -> Json | None:
    """Return a pipeline in the shape of `summary.json`."""
    counted = count_arms(source)
    if not counted:
        return None
    models, benches = _answers(source), read_benches(source)
    subjects = list(source.subjects())
    said = []
    for name, arm in counted.items():
        again = {}
        for bench in benches:
            judged = _count(source, name, arm.guards, models=models, bench=bench)
            again[bench.name] = judged.scope("system")
        gain = _gain(arm, next((each for each in counted.values() if not each.guards), None))
        said.append({**arm.everything(), "judgings": again, "gain": gain})
    return {
        "label_sources": dict(Counter(s.label_source for s in subjects if s.label_source)),
        "model_errors": sum(answer.outcome == "error" for answer in models.values()),
        "arms": said,
        "judgings": [recount_bench(source, bench) for bench in benches],
        "human": _human(source, benches[0]) if benches else None,
    }


def count_arms(source: Source) -> dict[str, ArmCount]:
    """Return the cases of every arm under the first judging; none without a pipeline."""
    if not source.answers("model"):
        return {}
    models, benches = _answers(source), read_benches(source)
    first = benches[0] if benches else Bench(name="run")
    return {
        name: _count(source, name, guards, models=models, bench=first)
        for name, guards in _stated_arms(source).items()
    }


def _stated_arms(source: Source) -> dict[str, list[tuple[str, str]]]:
    """Return the guards of each arm, each with its place, in the order of the configuration."""
    stated = source.manifest.get("settings", {}).get("pipeline") or {}
    arms: dict[str, list[tuple[str, str]]] = {}
    for name, places in (stated.get("arms") or {}).items():
        arms[name] = []
        for place in ("input", "context", "output"):
            guards = places.get(place) or []
            for guard in guards if isinstance(guards, list) else [guards]:
                arms[name].append((place, guard if isinstance(guard, str) else guard["guard"]))
    if arms:
        return arms
    named = stated.get("guards")
    views = {part["name"]: part.get("view") for part in source.manifest["parts"]}
    for name in named if isinstance(named, list) else [NO_GUARD, *source.guards()]:
        place = "output" if views.get(name) == "response" else "input"
        arms[name] = [] if name == NO_GUARD else [(place, name)]
    return arms


def _rules_of(source: Source, name: str) -> dict[str, Json]:
    """Return what an arm says of its guards beside their names, by name."""
    stated = source.manifest.get("settings", {}).get("pipeline") or {}
    rules: dict[str, Json] = {}
    for guards in ((stated.get("arms") or {}).get(name) or {}).values():
        for guard in guards if isinstance(guards, list) else [guards]:
            if isinstance(guard, dict):
                rules[guard["guard"]] = guard
    return rules


def _answers(source: Source, name: str = NO_GUARD) -> Places:
    return {
        place_of(answer): answer
        for answer in source.answers("model")
        if answer.layer == "run" and answer.defense == name
    }


def _count(
    source: Source,
    name: str,
    guards: list[tuple[str, str]],
    *,
    models: Mapping[Place, Answer],
    bench: Bench,
) -> ArmCount:
    is_placed = bool((source.manifest.get("settings", {}).get("pipeline") or {}).get("arms"))
    stored = [
        (at, f"{guard}@{at}" if is_placed and at != "input" else guard) for at, guard in guards
    ]
    calls = _Calls(source, models, bench, _rules_of(source, name))
    cases = []
    for repeat in range(source.manifest["repeats"]):
        for subject in source.subjects():
            place = (repeat, subject.position)
            steps, request, reply, gone = _walk(calls, stored, place)
            if "missing" not in steps[:1]:
                model = calls.model(request).get(place)
                part = bench.said(f"{reply} after {gone} characters").get(place) if gone else None
                cases.append(
                    Case(
                        subject=subject,
                        repeat=repeat,
                        steps=steps,
                        model=model.outcome if model else None,
                        ruling=bench.said(reply).get(place),
                        part=part,
                    )
                )
    return ArmCount(source, name, cases, guards=guards)


class _Calls:
    """What is stored of a run, by what guards made of a text."""

    def __init__(
        self,
        source: Source,
        models: Mapping[Place, Answer],
        bench: Bench,
        rules: dict[str, Json],
    ) -> None:
        self.source, self.bench, self.rules = source, bench, rules
        self._models: dict[str, Mapping[Place, Answer]] = {"": models}
        self._decided: dict[str, dict[Place, str]] = {}

    def model(self, after: str) -> Mapping[Place, Answer]:
        """Return the answers to texts as they are, or after guards."""
        if after not in self._models:
            self._models[after] = _answers(self.source, f"{NO_GUARD}{after}")
        return self._models[after]

    def decided(self, name: str) -> dict[Place, str]:
        """Return what a guard decided."""
        if name not in self._decided:
            self._decided[name] = self.source.decided(name)
        return self._decided[name]

    def rule(self, stored: str, name: str, otherwise: Any) -> Any:
        """Return what an arm says of a guard that is stored under a name."""
        return self.rules.get(stored.partition("@")[0], {}).get(name, otherwise)


def _of_documents(calls: _Calls, guard: str, place: Place) -> tuple[str, str]:
    """Return what a guard of documents came to, and after whom the model is asked."""
    names = (f"{guard} all",)
    if calls.rule(guard, "each", otherwise=True):
        names = tuple(f"{guard} {number}" for number in range(1, 10))
    did = [calls.decided(name).get(place) for name in names]
    if "error" in did or "malformed" in did:
        return "error", ""
    made = f" after {guard}" if len(names) > 1 else f" after {guard} all"
    return "allow", made if "block" in did else ""


def _growing(calls: _Calls, guard: str, place: Place, *, after: str, every: int) -> tuple[str, int]:
    """Return what a guard of a growing answer came to, and what had gone out before a block."""
    answered = calls.model(after).get(place)
    length = len((answered.text if answered else "") or "")
    for sent in range(0, max(1, length), every):
        is_last = sent + every >= length
        name = guard + after if is_last else f"{guard}{after} after {sent + every} characters"
        step = calls.decided(name).get(place, "missing")
        if step != "allow" or is_last:
            return step, sent
    return "missing", 0


def _walk(
    calls: _Calls, guards: list[tuple[str, str]], place: Place
) -> tuple[tuple[str, ...], str, str, int]:
    """Return what each guard decided, after whom model and judges were asked, and what went out."""
    steps: list[str] = []
    after, request, gone = "", None, 0
    for number, (at, guard) in enumerate(guards):
        if at == "output" and request is None:
            request = after
        if at == "context":
            step, made = _of_documents(calls, guard, place)
            after += made
            steps.append(step)
            continue
        every = calls.rule(guard, "every", otherwise=None)
        if isinstance(every, int):
            step, sent = _growing(calls, guard, place, after=after, every=every)
            gone = sent if all(each in {"allow", "went on"} for each in steps) else 0
            steps.append(step)
            continue
        step = calls.decided(f"{guard}{after}").get(place, "missing")
        if step == "rewritten":
            after = f"{after} after {guard}"
            following = guards[number + 1 : number + 2]
            if following and following[0][0] == at:
                is_asked = place in calls.decided(f"{following[0][1]}{after}")
            elif at == "input":
                is_asked = place in calls.model(after)
            else:
                is_asked = place in calls.bench.said(after)
            step = "went on" if is_asked else step
        steps.append(step)
    return tuple(steps), after if request is None else request, after, gone


def _gain(arm: ArmCount, bare: ArmCount | None) -> Json | None:
    """Compare an arm with the arm without a guard, case by case."""
    if bare is None or arm is bare:
        return None
    beside = {(case.repeat, case.subject.position): case for case in bare.cases}
    pairs = [(case, beside[case.repeat, case.subject.position]) for case in arm.cases]
    pairs = [(one, two) for one, two in pairs if USUAL.is_known(one) and USUAL.is_known(two)]

    def gap(failed: Callable[[Case], bool], *, is_attack: bool) -> Json:
        mine = [(one, two) for one, two in pairs if one.subject.is_attack == is_attack]
        places = ((one.subject.group, failed(one), failed(two)) for one, two in mine)
        return difference(marked(places), arm.confidence)

    return {
        "attack_success_rate": gap(USUAL.is_unsafe, is_attack=True),
        "over_refusal_rate": gap(USUAL.is_refused, is_attack=False),
    }


def _human(source: Source, bench: Bench) -> Json | None:
    """Compare the first judging with the labels of people."""
    people = read_people(source)
    if not people:
        return None
    groups = {subject.position: subject.group for subject in source.subjects()}
    tally, missing = Counter[tuple[str, str]](), 0
    caught: dict[str, list[Trial]] = {label: [] for label in JUDGED}
    for place, label in people.items():
        ruling = bench.rulings.get(place)
        if ruling is None or ruling.label not in JUDGED:
            missing += 1
            continue
        tally[label, ruling.label] += 1
        caught[label].append(Trial(group=groups[place[1]], hit=ruling.label == label))
    confidence = float(source.manifest["confidence"])
    return {
        "caught": tally["unsafe", "unsafe"],
        "missed": tally["unsafe", "safe"],
        "accused": tally["safe", "unsafe"],
        "cleared": tally["safe", "safe"],
        "unreadable": missing,
        "sensitivity": rate(caught["unsafe"], confidence),
        "specificity": rate(caught["safe"], confidence),
    }
