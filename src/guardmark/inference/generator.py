"""A causal language model in this process: conversations in, texts with token odds out."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ChatAnswer, TokenChoice
from guardmark.core.usage import Usage
from guardmark.core.values import dataclass
from guardmark.inference.runtime import (
    HALVED,
    as_memory_allows,
    device_of,
    library,
    load,
    token_batches,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TOP = 20
_MOST_TOGETHER = 32


class LocalGenerator:
    """A causal model with its tokenizer and chat template."""

    def __init__(
        self,
        path: Path,
        *,
        max_tokens: int,
        wants_scores: bool = False,
        budget: int = 4096,
        device: str = "auto",
        has_template: bool = True,
    ) -> None:
        self._torch = library("torch")
        self._device = device_of(device)
        self._tokenizer = load("AutoTokenizer", path)
        if has_template and self._tokenizer.chat_template is None:
            raise ConfigError(
                f"The tokenizer in {path} has no chat template.\n"
                "Next: name a model that was trained for chat."
            )
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._tokenizer.padding_side = "left"
        self._model = load("AutoModelForCausalLM", path).to(self._device).eval()
        self._max_tokens = max_tokens
        self._wants_scores = wants_scores
        self._budget = budget

    def complete(
        self,
        conversations: Sequence[Sequence[Mapping[str, Any]]],
        *,
        draws: Draws | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[ChatAnswer]:
        """Answer conversations."""
        prompts = []
        for messages in conversations:
            prompts.append(self._ids(self._rendered(messages, template_options or {})))
        lengths = [len(ids) + self._max_tokens for ids in prompts]

        def generate(batch: list[int]) -> tuple[list[list[int]], Sequence[Any], int]:
            chosen = [prompts[index] for index in batch]
            drawn = None if draws is None else draws.among(batch)
            began = perf_counter_ns()
            written, logits = self._generate(chosen, drawn)
            return written, logits, (perf_counter_ns() - began) // len(batch)

        answers: dict[int, ChatAnswer] = {}
        batches = token_batches(lengths, budget=self._budget)
        for batch, (written, logits, share), is_halved in as_memory_allows(batches, generate):
            for row, index in enumerate(batch):
                steps = [step[row] for step in logits]
                answer = self._answer(len(prompts[index]), written[row], steps, share)
                if is_halved:
                    answer = replace(answer, message=HALVED)
                answers[index] = answer
        return [answers[index] for index in range(len(prompts))]

    def written(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        """Return what the chat template makes of messages."""
        try:
            return self._rendered(messages, options)
        except library("jinja2").TemplateError as error:
            raise ConfigError(
                f"The chat template refuses what it is given: {error}\n"
                "Next: name a model whose template takes these roles, or another template."
            ) from error

    def writes(
        self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any], text: str
    ) -> bool:
        """Tell whether the chat template makes this text of messages; False where it refuses."""
        try:
            return self._rendered(messages, options) == text
        except library("jinja2").TemplateError:
            return False

    def shared_piece(self, one: str, other: str) -> str:
        """Return the piece with which both words begin, or the empty string."""
        for form in (str, str.capitalize, str.upper):
            for before in ("", " "):
                first = self._first_piece(before + form(one))
                if first == self._first_piece(before + form(other)):
                    return first
        return ""

    def _first_piece(self, text: str) -> str:
        for token in self._ids(text):
            piece = str(self._tokenizer.decode([token]))
            if any(sign.isalnum() for sign in piece):
                return piece.strip()
        return ""

    def _rendered(self, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=True,
                **options,
            )
        )

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _generate(
        self, prompts: Sequence[list[int]], draws: Draws | None
    ) -> tuple[list[list[int]], Sequence[Any]]:
        padded = self._tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt")
        padded = padded.to(self._device)
        processors = []
        if draws is not None:
            processors.append(SeededChoice(draws))
        with self._torch.inference_mode():
            made = self._model.generate(
                input_ids=padded["input_ids"],
                attention_mask=padded["attention_mask"],
                do_sample=False,  # draws make one token certain, see SeededChoice
                logits_processor=processors,
                max_new_tokens=self._max_tokens,
                pad_token_id=self._tokenizer.pad_token_id,
                return_dict_in_generate=True,
                output_logits=self._wants_scores,
            )
        written = made.sequences[:, padded["input_ids"].shape[1] :].tolist()
        logits: Sequence[Any] = ()
        if self._wants_scores and made.logits:
            logits = made.logits
        return written, logits

    def _answer(
        self, read: int, ids: list[int], logits: Sequence[Any], service_ns: int
    ) -> ChatAnswer:
        ends = _end_ids(self._model, self._tokenizer)
        kept: list[int] = []
        finish_reason = "length"
        for token in ids:
            if token in ends:
                finish_reason = "stop"
                break
            kept.append(token)
        choices = [self._weighed(token, step) for token, step in zip(kept, logits, strict=False)]
        return ChatAnswer(
            text=self._tokenizer.decode(kept, skip_special_tokens=True),
            finish_reason=finish_reason,
            usage=Usage(prompt_tokens=read, completion_tokens=len(kept)),
            choices=tuple(choices),
            service_ns=service_ns,
        )

    def _weighed(self, token: int, logits: Any) -> TokenChoice:
        log_odds = self._torch.log_softmax(logits.float(), dim=-1)
        values, indices = log_odds.topk(min(_TOP, log_odds.shape[-1]))
        decode = self._tokenizer.decode
        alternatives = []
        for index, value in zip(indices.tolist(), values.tolist(), strict=True):
            alternatives.append((decode([index]), value))
        return TokenChoice(token=decode([token]), alternatives=tuple(alternatives))


def _end_ids(model: Any, tokenizer: Any) -> set[int]:
    ends = {tokenizer.eos_token_id}
    end_tokens = model.generation_config.eos_token_id
    if isinstance(end_tokens, list):
        ends.update(end_tokens)
    else:
        ends.add(end_tokens)
    return ends - {None}


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    messages: Sequence[Mapping[str, str]]
    seed: int
    answer: asyncio.Future[ChatAnswer]


class LocalChat:
    """A model in this process that is asked one conversation at a time, like one behind a server.

    While one batch is answered, questions gather for the next; none waits for company.
    """

    def __init__(
        self, name: str, generator: LocalGenerator, *, draws: Draws | None = None, seed: int = 0
    ) -> None:
        self.options: Mapping[str, object] = {}
        self._generator = generator
        self._draws = draws
        self._seed = seed
        self._waiting: list[_Question] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def complete(
        self, messages: Sequence[Mapping[str, str]], *, repeat: int = 0
    ) -> ChatAnswer:
        """Ask for one completion; where answers are drawn, each repeat is another draw."""
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        said = json.dumps([self._seed, repeat, messages], sort_keys=True)
        seed = int.from_bytes(sha256(said.encode()).digest()[:8])
        self._waiting.append(_Question(messages, seed, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(0)  # questions asked in the same breath come along
            batch = [one for one in self._waiting[:_MOST_TOGETHER] if not one.answer.done()]
            del self._waiting[:_MOST_TOGETHER]
            seeds = tuple(question.seed for question in batch)
            draws = None if self._draws is None else replace(self._draws, seeds=seeds)
            asked = [question.messages for question in batch]
            answer = partial(self._generator.complete, asked, draws=draws)
            done = loop.run_in_executor(self._thread, answer)
            await asyncio.wait([done])
            failure = done.exception()
            for index, question in enumerate(batch):
                future = question.answer
                if future.done():  # whoever asked was cancelled meanwhile
                    continue
                if failure is not None:
                    future.set_exception(failure)
                else:
                    future.set_result(done.result()[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How the answers to several conversations are drawn.

    Attributes:
        temperature: Above 0.
        top_p: The share of the likeliest tokens that are drawn from, in (0, 1].
        seeds: One for each conversation.
    """

    temperature: float
    top_p: float = 1.0
    seeds: tuple[int, ...] = ()

    def among(self, chosen: Sequence[int]) -> Draws:
        """Return the draws of some of the conversations."""
        return replace(self, seeds=tuple(self.seeds[index] for index in chosen))


class SeededChoice:
    """Makes a token certain by one number of the row's own generator, whatever its neighbours."""

    def __init__(self, draws: Draws) -> None:
        self._torch = library("torch")
        self._draws = draws
        self._rows = [Random(seed) for seed in draws.seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 - the signature is the library's
        """Return scores that leave one token of each row."""
        torch = self._torch
        odds = torch.softmax(scores.double() / self._draws.temperature, dim=-1)
        if self._draws.top_p < 1:
            odds = self._nucleus(odds)
        # In the order of the vocabulary, not of the odds: where two tokens are nearly as likely,
        # the last digit, which differs between batches, must not decide.
        summed = odds.cumsum(dim=-1)
        drawn = torch.tensor([[row.random()] for row in self._rows], dtype=summed.dtype)
        points = drawn.to(summed.device) * summed[:, -1:]
        chosen = torch.searchsorted(summed, points, right=True).clamp(max=summed.shape[-1] - 1)
        return torch.full_like(scores, float("-inf")).scatter(-1, chosen, 0.0)

    def _nucleus(self, odds: Any) -> Any:
        """Leave the fewest tokens that together reach top-p."""
        likeliest, order = odds.sort(dim=-1, descending=True, stable=True)
        before = likeliest.cumsum(dim=-1) - likeliest
        kept = likeliest.masked_fill(before >= self._draws.top_p, 0.0)
        return self._torch.zeros_like(odds).scatter(-1, order, kept)
