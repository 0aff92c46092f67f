"""Round 5: an attacker model rewrites attacks, and benign texts as a control."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.adaptive import prompts
from guardmark.adaptive.model_asker import ReplyKind
from guardmark.adaptive.probes import NONE
from guardmark.adaptive.prompts import PastTry, Situation
from guardmark.adaptive.state import (
    MODEL_ROUND,
    REWORDING,
    Account,
    Ask,
    Query,
    Target,
    text_digest,
)
from guardmark.attacks.application import tier_of
from guardmark.attacks.contract import Tier, is_writable
from guardmark.core.values import dataclass
from guardmark.store.layers import CANDIDATES, TWIN_CANDIDATES
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guardmark.adaptive.defense_asker import DefenseAsker
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.model_asker import ModelAsker, ModelReply
    from guardmark.adaptive.state import SearchState, TryAnswer
    from guardmark.core.sample import Prompt

_LONGEST: Final = 20_000  # characters of a candidate
_MOST_REFUTED: Final = 24
_OUTCOMES: Final = {
    True: "blocked by the filter",
    False: "came through once, but not when sent again",
    None: "the filter gave no answer",
}


class CandidateStatus(StrEnum):
    """What became of a candidate."""

    SENT = "sent"
    REPEATED = "repeated"
    UNUSABLE = "unusable"
    LOST_SPAN = "lost_span"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    UNJUDGED = "unjudged"
    UNUSED = "unused"


_REFUSED: Final = {
    CandidateStatus.REPEATED: "not sent: repeats an earlier one",
    CandidateStatus.LOST_SPAN: "not sent: a piece of must_keep is missing",
    CandidateStatus.DIFFERENT: "not sent: asks for something else",
    CandidateStatus.UNDECIDED: "not sent: may ask for something else",
}


@dataclass(slots=True, kw_only=True)
class Draft:
    """A candidate under way."""

    stream: int
    depth: int
    strategy: str
    text: str
    tier: str = ""
    position: int = 0  # in its line, once the defense has answered

    def note(self, status: CandidateStatus) -> TrySubject:
        """Return what is stored of it: its tier only once it is sent."""
        tier = ""
        if status is CandidateStatus.SENT:
            tier = self.tier
        return TrySubject(
            account="candidate",
            round=MODEL_ROUND,
            digest=text_digest(self.text),
            tier=tier,
            details={
                "stream": self.stream,
                "depth": self.depth,
                "strategy": self.strategy,
                "fate": status.value,
            },
        )


@dataclass(slots=True, kw_only=True)
class AttackerThread:
    """One attack that an attacker model works on."""

    target: Target
    past: list[list[PastTry]]
    queue: deque[Draft] = field(default_factory=deque)
    judged: int = 0
    criticised: int = 0
    blocked: list[Draft] = field(default_factory=list)
    has_passed_unproved: bool = False
    refuted: tuple[str, ...] = ()
    _seen: set[str] = field(default_factory=set)

    @staticmethod
    def of(target: Target, *, streams: int) -> AttackerThread:
        """Take over an attack that is blocked still."""
        single = {name.split("@", 1)[0] for name in target.tried if " + " not in name}
        return AttackerThread(
            target=target,
            past=[[] for _ in range(streams)],
            refuted=tuple(sorted(single)[:_MOST_REFUTED]),
            _seen=set(map(_squeezed, (target.sample.prompt.text, *target.seen))),
        )

    def may_try(self, budget: int) -> bool:
        """Tell whether a further try makes sense."""
        is_over = self.target.win is not None or self.has_passed_unproved
        return not is_over and self.target.tries < budget

    def take(self, draft: Draft) -> CandidateStatus | None:
        """Check what costs nothing to check, and queue the candidate if it may be sent.

        A candidate with the letters of the original is proved (V1); all others need a judge.
        """
        original, text = self.target.sample.prompt.text, draft.text
        if not text.strip() or len(text) > _LONGEST or not is_writable(text):
            return CandidateStatus.UNUSABLE  # no service would take it
        squeezed = _squeezed(text)
        if squeezed in self._seen:
            return self.refuse(draft, CandidateStatus.REPEATED)
        self._seen.add(squeezed)
        tier = tier_of(original, text, self.target.sample.must_keep)
        if tier is None:
            return self.refuse(draft, CandidateStatus.LOST_SPAN)
        draft.tier = ""
        if tier is Tier.V1:
            draft.tier = tier.value
        self.queue.append(draft)
        return None

    def refuse(self, draft: Draft, status: CandidateStatus) -> CandidateStatus:
        """Tell its line of thought why a candidate was not sent."""
        if status in _REFUSED:
            self.past[draft.stream].append(PastTry(text=draft.text, outcome=_REFUSED[status]))
        return status

    def answered(self, draft: Draft, answer: TryAnswer, *, is_through: bool) -> None:
        """Tell its line of thought what the defense said."""
        outcome = _OUTCOMES[answer.is_blocked]
        if is_through:
            outcome = "came through"
        line = self.past[draft.stream]
        draft.position = len(line)
        if answer.is_blocked:
            self.blocked.append(draft)
        line.append(
            PastTry(text=draft.text, outcome=outcome, score=answer.score, reason=answer.reason)
        )

    def take_blocked(self, stream: int) -> list[Draft]:
        """Return the blocked candidates of a line that nobody criticised yet, and forget them."""
        of_line, of_others = [], []
        for draft in self.blocked:
            if draft.stream == stream:
                of_line.append(draft)
            else:
                of_others.append(draft)
        self.blocked = of_others
        return of_line


DraftBatch = list[tuple[AttackerThread, Draft]]


def _squeezed(text: str) -> str:
    return " ".join(text.split())


_TWIN: Final = "attacker twin"


@dataclass(frozen=True, slots=True)
class RewordingAccounts:
    """The accounts of rewording: of attacks, or of benign texts as their control.

    Attributes:
        writer: Account of the calls that write candidates.
        judge: Account of the calls that judge whether they ask for the same.
        sent: Account of the candidates that are sent to the defense.
        round: Round in which they are sent.
        candidates: Layer that holds what became of each candidate.
    """

    writer: Account
    judge: Account
    sent: Account
    round: str
    candidates: str


_ATTACKS: Final = RewordingAccounts(
    Account.ATTACKER, Account.EQUIVALENCE, Account.SEARCH, MODEL_ROUND, CANDIDATES
)
_BENIGN: Final = RewordingAccounts(
    Account.TWIN_ATTACKER, Account.TWIN_EQUIVALENCE, Account.REWORDED, REWORDING, TWIN_CANDIDATES
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRound:
    """What every step of the round looks at, and how strategies fared so far."""

    state: SearchState
    diagnosis: Diagnosis
    models: ModelAsker
    defenses: DefenseAsker
    accounts: RewordingAccounts = _ATTACKS
    tried: Counter[tuple[int | None, str]] = field(default_factory=Counter)
    passed: Counter[tuple[int | None, str]] = field(default_factory=Counter)

    @property
    def shows_guesses(self) -> bool:
        """Whether a critic's guesses are used: nobody else tells how close, and tries are shown."""
        plan = self.models.plan
        return plan.critic is not None and not self.state.scores and plan.history > 0

    def record_for(self, thread: AttackerThread) -> Mapping[str, tuple[int, int]]:
        """How often each strategy was tried and got through, as far as an attack is told."""
        whose: int | None = thread.target.position
        if self.state.shares_memory:
            whose = None
        names = prompts.strategies()
        return {name: (self.tried[whose, name], self.passed[whose, name]) for name in names}

    def count(self, thread: AttackerThread, strategy: str, *, passed: bool) -> None:
        """Count an outcome of a strategy, on one attack and on all of them."""
        for whose in (None, thread.target.position):
            self.tried[whose, strategy] += 1
            if passed:
                self.passed[whose, strategy] += 1

    async def write(self, live: Sequence[AttackerThread], depth: int) -> None:
        """Ask for candidates; queue those that may be sent."""
        models = self.models
        lines = []
        for stream in range(models.plan.streams):
            for thread in live:
                # No more lines than the rest of the budget can use.
                if stream * models.plan.candidates < self.state.budget - thread.target.tries:
                    lines.append((thread, stream))
        lines = lines[: models.calls_left]
        await self._criticise(lines)
        system = None
        if self.shows_guesses:
            system = f"{prompts.system_text()}\n{prompts.instruction('seen_by_attacker')}"
        asks = []
        for thread, stream in lines:
            purpose = ("attacker", stream, depth)
            asks.append(
                self.ask_to_write(thread, purpose, system=system, stream=stream, depth=depth)
            )
        replies = await models.ask_until_readable(
            asks, again=prompts.repair_prompt, most=lambda: models.calls_left
        )
        written: dict[int, list[list[Draft]]] = {thread.target.position: [] for thread in live}
        for (thread, stream), reply in zip(lines, replies, strict=True):
            written[thread.target.position].append(self.drafts(reply, stream, depth))
        for thread in live:
            # The first candidate of every line, then the second of every line, and so on.
            ranks = zip_longest(*written[thread.target.position])
            self.queue(thread, filter(None, chain.from_iterable(ranks)))

    def ask_to_write(
        self,
        thread: AttackerThread,
        purpose: tuple[str | int, ...],
        *,
        system: str | None,
        stream: int = 0,
        depth: int = 0,
    ) -> Ask:
        """Ask for candidates of one line at one depth."""

        def prompt(call: str) -> Prompt:
            situation = replace(
                self._situation(thread, call),
                defense=self.models.name,
                must_keep=thread.target.sample.must_keep,
                refuted=thread.refuted,
                tries=shown_tries(thread.past[stream], most=self.models.plan.history),
                wanted=self.models.plan.candidates,
                stream=(stream + 1, len(thread.past)),
            )
            return prompts.attacker_prompt(situation, system=system)

        details = {"stream": stream, "depth": depth, "repair": False}
        return self._ask(
            thread, purpose, account=self.accounts.writer, prompt=prompt, details=details
        )

    def _situation(self, thread: AttackerThread, call: str) -> Situation:
        kind = self.diagnosis.label
        if kind == NONE:
            kind = ""
        return Situation(
            call=call,
            kind=kind,
            folds=self.diagnosis.folds,
            trigger=self.diagnosis.core_of(thread.target.position),
            request=thread.target.sample.prompt.text,
            strategies=self.record_for(thread),
        )

    def _ask(
        self,
        thread: AttackerThread,
        purpose: tuple[str | int, ...],
        *,
        account: Account,
        prompt: Callable[[str], Prompt],
        details: Mapping[str, object],
        pair: tuple[str, str] = ("", ""),
    ) -> Ask:
        """Make a question about an attack; its purpose decides its number and its seed."""
        word, *numbers = purpose
        draw = self.state.draw(word, self.models.name, thread.target.sample.id, *numbers)
        call = f"{draw.getrandbits(48):012x}"
        return Ask(
            sample=thread.target.position,
            account=account,
            prompt=prompt(call),
            seed=draw.getrandbits(31),
            details=details,
            pair=pair,
        )

    async def _criticise(self, lines: Sequence[tuple[AttackerThread, int]]) -> None:
        """Ask how close blocked candidates came, in lines that go on and where it is not known.

        Guesses are for the choice of tries alone: no rate and no tier rests on them.
        """
        if not self.shows_guesses or not self.models.has_critic():
            return
        blocked = []
        for thread, stream in lines:
            for draft in thread.take_blocked(stream):
                blocked.append((thread, draft))
        asks = [self._ask_critic(thread, draft) for thread, draft in blocked]
        replies = await self.models.ask_until_readable(asks, again=prompts.critic_repair)
        for (thread, draft), reply in zip(blocked, replies, strict=True):
            if reply.closeness is not None:
                line = thread.past[draft.stream]
                line[draft.position] = replace(line[draft.position], closeness=reply.closeness)

    def _ask_critic(self, thread: AttackerThread, draft: Draft) -> Ask:
        """Return the question how close a blocked candidate came."""
        number = thread.criticised
        thread.criticised += 1
        reason = thread.past[draft.stream][draft.position].reason

        def prompt(call: str) -> Prompt:
            about = self._situation(thread, call)
            return prompts.critic_prompt(
                about, text=draft.text, strategy=draft.strategy, reason=reason
            )

        coordinates = {"stream": draft.stream, "depth": draft.depth, "candidate": number}
        return self._ask(
            thread,
            ("critic", number),
            account=Account.CRITIC,
            prompt=prompt,
            details={**coordinates, "repair": False},
        )

    def drafts(self, reply: ModelReply, stream: int = 0, depth: int = 0) -> list[Draft]:
        """Return the candidates of a reply."""
        drafts = []
        for each in reply.candidates[: self.models.plan.candidates]:
            draft = Draft(stream=stream, depth=depth, strategy=each.strategy, text=each.text)
            drafts.append(draft)
        return drafts

    def queue(self, thread: AttackerThread, drafts: Iterable[Draft]) -> None:
        """Queue what may be sent, and note what became of the rest."""
        for draft in drafts:
            status = thread.take(draft)
            if status is not None:
                self.note(thread, draft, status)

    def note(self, thread: AttackerThread, draft: Draft, status: CandidateStatus) -> None:
        """Store what became of a candidate."""
        self.models.note(self.accounts.candidates, thread.target.position, draft.note(status))

    async def send(
        self, batch: Sequence[AttackerThread]
    ) -> tuple[DraftBatch, list[Query], list[TryAnswer]]:
        """Send the next candidate of each, where it may be sent."""
        drafts = await self._proved([(thread, thread.queue.popleft()) for thread in batch])
        queries = []
        for thread, draft in drafts:
            query = Query(
                thread.target.position,
                draft.text,
                self.accounts.sent,
                self.accounts.round,
                chain=f"attacker [{draft.strategy}]",
                tier=draft.tier,
            )
            queries.append(query)
        answers = await self.defenses.ask(queries)
        for thread, draft in drafts:
            self.note(thread, draft, CandidateStatus.SENT)
        return drafts, queries, answers

    async def _proved(self, drafts: DraftBatch) -> DraftBatch:
        """Return the candidates that may be sent, each with its tier; note why others may not."""
        unproved = [(thread, draft) for thread, draft in drafts if not draft.tier]
        if self.models.plan.judge is None:
            for _, draft in unproved:
                draft.tier = Tier.V4.value
            return drafts
        count = self.models.plan.votes
        asks: list[Ask] = []
        for thread, draft in unproved:
            asks += list(self._votes(thread, draft))[:count]
        votes = await self.models.ask(asks)
        for number, (thread, draft) in enumerate(unproved):
            verdicts = {reply.kind for reply in votes[count * number : count * (number + 1)]}
            if verdicts == {ReplyKind.SAME}:
                draft.tier = Tier.V3.value
                continue
            status = CandidateStatus.UNDECIDED
            if verdicts == {ReplyKind.DIFFERENT}:
                status = CandidateStatus.DIFFERENT
            elif not verdicts <= {ReplyKind.SAME, ReplyKind.DIFFERENT}:
                status = CandidateStatus.UNJUDGED
            thread.refuse(draft, status)
            self.note(thread, draft, status)
        return [(thread, draft) for thread, draft in drafts if draft.tier]

    def _votes(self, thread: AttackerThread, draft: Draft) -> Iterator[Ask]:
        """Ask whether it is the same request, in both orders."""
        number, judge = thread.judged, self.accounts.judge
        thread.judged += 1
        original = thread.target.sample.prompt.text
        for order, pair in enumerate(((original, draft.text), (draft.text, original))):
            yield self._ask(
                thread,
                (judge, number, order),
                account=judge,
                prompt=partial(prompts.equivalence_prompt, *pair),
                details={"candidate": number, "order": order},
                pair=pair,
            )

    def note_unused(self, threads: Sequence[AttackerThread]) -> None:
        """Note what was written and never sent."""
        for thread in threads:
            for draft in thread.queue:
                self.note(thread, draft, CandidateStatus.UNUSED)
        self.defenses.context.writer.flush()


async def run_attacker(work: ModelRound, targets: Sequence[Target]) -> None:
    """Let a model try what rules did not bring through, all attacks a step together."""
    models, budget = work.models, work.state.budget
    threads = []
    for target in targets:
        if target.win is None and target.tries < budget:
            threads.append(AttackerThread.of(target, streams=models.plan.streams))
    for depth in range(models.plan.depth):
        live = [each for each in threads if each.may_try(budget)]
        if not live or models.has_gone() or not models.calls_left:
            break
        await work.write(live, depth)
        while not models.has_gone():
            batch = [each for each in live if each.queue and each.may_try(budget)]
            if not batch:
                break
            await _try_next(work, batch)
    work.note_unused(threads)


async def _try_next(work: ModelRound, batch: Sequence[AttackerThread]) -> None:
    """Try the next candidate of each attack that has one."""
    drafts, queries, answers = await work.send(batch)
    won = await work.defenses.drive(work.state.confirm(queries, answers))
    for i, (thread, draft) in enumerate(drafts):
        thread.target.tries += 1
        thread.target.seen.add(draft.text)
        thread.answered(draft, answers[i], is_through=i in won)
        if answers[i].is_blocked is not None:
            work.count(thread, draft.strategy, passed=i in won)
        if i in won and draft.tier == Tier.V4.value:
            thread.has_passed_unproved = True
        elif i in won:
            thread.target.win = queries[i]


async def run_rewording(after: ModelRound) -> None:
    """Reword some benign texts as attacks were, label untold, so that block rates compare."""
    work, state, models = replace(after, accounts=_BENIGN), after.state, after.models
    wanted = min(models.plan.twin, len(state.benign))
    if not wanted or models.has_gone():
        return
    threads, asks = [], []
    for index in sorted(state.draw(_TWIN).sample(state.benign, wanted)):
        target = Target(position=index, sample=state.samples[index])
        thread = AttackerThread.of(target, streams=1)
        threads.append(thread)
        asks.append(work.ask_to_write(thread, (_TWIN,), system=prompts.neutral_text()))
    replies = await models.ask_until_readable(asks, again=prompts.repair_prompt)
    for thread, reply in zip(threads, replies, strict=True):
        work.queue(thread, work.drafts(reply))
    while not models.has_gone():
        batch = [each for each in threads if each.queue]
        if not batch:
            break
        await work.send(batch)
    work.note_unused(threads)


def shown_tries(past: Sequence[PastTry], *, most: int) -> tuple[PastTry, ...]:
    """Choose the tries of a line that the attacker model is shown: the closest, or the last."""
    if not most:
        return ()
    if all(each.closeness is None for each in past):
        return tuple(past[-most:])
    ranked = sorted(range(len(past)), key=lambda i: (past[i].closeness or 0.0, i))[-most:]
    best = ranked[-1]
    return tuple(replace(past[i], is_best=i == best) for i in sorted(ranked))
