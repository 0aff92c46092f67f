"""The built-in rule set of the pattern defense: wordings and marks of a take-over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RULES_FILE = Path(__file__)
"""Where the rules stand, for the fingerprint of a run: other rules are another defense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternRule:
    """One regular expression with a name for reports."""

    name: str
    pattern: str
    words: str = ""


_GAP = r"[^.!?\n]{0,40}"  # every repetition is bounded: no text makes a search slow
_EARLIER = r"(?:previous|prior|earlier|above|preceding|former|existing|original|initial)"
_ORDERS = (
    r"(?:instructions?|directives?|orders?|rules?|prompts?|guidelines?|guidance|briefing"
    r"|constraints?|restrictions?|polic(?:y|ies)|mandate|commands?)"
)
_DROP_WORDS = (
    "ignore disregard forget override overrule discard bypass abandon stop skip drop cancel"
)
_DROP = (
    r"(?:ignore|disregard|forget|override|overrule|discard|bypass|abandon|stop\sfollowing|skip"
    r"|drop|cancel)"
)
_TELL_WORDS = "reveal print show repeat output display disclose recite quote paste dump leak type"
_TELL = rf"(?:{_TELL_WORDS.replace(' ', '|')})"
_HIDDEN = (
    r"(?:system\s(?:prompt|message|instructions?)|hidden\s(?:prompt|instructions?|rules?)"
    r"|your\s(?:own\s)?(?:instructions|prompt|configuration|briefing|guidelines|setup))"
)
_MODEL = (
    r"(?:ai|assistants?|agents?|language\smodels?|llms?|chat\s?bots?|bots?|models?|summari[sz]ers?"
    r"|copilots?)"
)

BUILTIN_RULES = (
    PatternRule(
        name="drop-earlier-orders",
        pattern=rf"\b{_DROP}\b{_GAP}\b{_EARLIER}\b{_GAP}\b{_ORDERS}\b",
        words=_DROP_WORDS,
    ),
    PatternRule(
        name="drop-your-orders",
        pattern=rf"\b{_DROP}\b[^.!?\n]{{0,20}}\b(?:all|any|your|those)\b[^.!?\n]{{0,20}}\b{_ORDERS}\b",
        words=_DROP_WORDS,
    ),
    PatternRule(
        name="orders-no-longer-hold",
        pattern=rf"\b{_ORDERS}\b[^.!?\n]{{0,60}}\b(?:no\slonger\s(?:appl|hold|count|bind|valid)"
        r"|(?:are|is|have\sbeen|has\sbeen|were|was)\s(?:hereby\s|now\s)?(?:void|revoked|cancell?ed"
        r"|suspended|superseded|lifted|replaced|withdrawn))",
        words="longer void revoked cancelled canceled suspended superseded lifted replaced "
        "withdrawn",
    ),
    PatternRule(
        name="tell-hidden-text",
        pattern=rf"\b{_TELL}\b[^.!?\n]{{0,60}}\b{_HIDDEN}",
        words=_TELL_WORDS,
    ),
    PatternRule(
        name="secret-by-name",
        pattern=r"\b[A-Za-z]{2,20}_(?:API_?)?(?i:key|pass|passwd|password|secret|token|pin)\b",
    ),
    PatternRule(
        name="role-switch",
        pattern=r"\b(?:you(?:'re|\u2019re|\sare)\snow|from\s(?:now|here)\son,?\syou"
        r"|you\swill\snow\s(?:be|act)|from\shere\syou|be\s(?:him|her)\s(?:tonight|now))\b",
        words="now here tonight",
    ),
    PatternRule(
        name="unbound-persona",
        pattern=r"\b(?:act|answer|speak|pretend|you(?:'re|\u2019re|\sare)|play|be)\b[^\n]{0,160}"
        r"\b(?:no\s(?:restrictions|limits|rules|filters?|ethics|morals)|without\s(?:restrictions"
        r"|limits|rules|filters?|hedging|disclaimers|warnings)|unfiltered|uncensored|unhedged"
        r"|despises?\s(?:disclaimers|rules)|(?:doesn't|does\snot|never)\s(?:refuses?|hedges?|do"
        r"\stheory))\b",
        words="restrictions limits rules filter filters ethics morals disclaimers warnings "
        "hedging unfiltered uncensored unhedged refuse refuses hedge theory",
    ),
    PatternRule(
        name="stay-in-character",
        pattern=r"\b(?:(?:never|don't|do\snot)\s(?:break|leave|drop)|stay\sin|without\sbreaking)"
        r"\s(?:the\s)?(?:character|role|part)\b",
        words="character role part",
    ),
    PatternRule(
        name="privileged-mode",
        pattern=r"\b(?:developer|debug|maintenance|admin|god|root|sudo|unrestricted|override"
        r"|diagnostic)\smode\b",
        words="mode",
    ),
    PatternRule(
        name="lift-safety",
        pattern=r"\b(?:disable|deactivate|switch\soff|turn\soff|suspend|lift|remove)\b"
        r"[^.!?\n]{0,30}\b(?:safety|safeguards?|filters?|guard\s?rails?|moderation|restrictions?)\b",
        words="disable deactivate switch turn suspend lift remove",
    ),
    PatternRule(
        name="no-refusal",
        pattern=r"\b(?:do\snot|don't|never|without|no)\b[^.!?\n]{0,25}\b(?:refuse|refusal|refusing"
        r"|decline|disclaimers?|apologi[sz]e|apologies|lectures?|moralising|moralizing)\b",
        words="refuse refusal refusing decline disclaimer disclaimers apologise apologize "
        "apologies lecture lectures moralising moralizing",
    ),
    PatternRule(
        name="answer-only",
        pattern=r"\b(?:reply|respond|answer|output|say|print|write|return)\b[^.!?\n]{0,25}\b(?:only"
        r"|nothing\s(?:but|else|except)|just|exactly|solely)\b[^.!?\n]{0,40}[\"'`\u201c\u201e\u00ab]",
        words="only nothing just exactly solely",
    ),
    PatternRule(
        name="spoofed-turn",
        pattern=r"^[ \t]{0,8}(?:<\|?/?(?:system|im_start|im_end|assistant|developer)\b"
        r"|\[/?(?:system|inst|developer)\]|#{1,4}\s?(?:system|new\sinstructions?)\b|(?:system|developer)\s?"
        r"(?:prompt|message|note|override)?:)",
        words="system developer assistant inst im_start im_end instructions instruction",
    ),
    PatternRule(
        name="spoofed-end",
        pattern=r"[=\-#*<]{2}\s?(?:end|start|begin)\s(?:of\s)?(?:user|system|input|question"
        r"|document|data|prompt|context|message|config|rider|visitor)",
        words="end start begin",
    ),
    PatternRule(
        name="model-in-material",
        pattern=rf"(?:^|[\s(\[{{\"'>;-]){_MODEL}(?:\s(?:must|shall|should|has\sto|have\sto|are\sto"
        r"|is\sto|that\sread|which\sread|reading|may\snot)\b|:\s)",
        words="ai assistant assistants agent agents llm llms chatbot chatbots bot bots model "
        "models summariser summarizer summarisers summarizers copilot copilots",
    ),
    PatternRule(
        name="keep-from-user",
        pattern=r"\b(?:do\snot|don't|never|without)\b[^.!?\n]{0,15}\b(?:tell|mention(?:ing)?"
        r"|inform|telling|show(?:ing)?|reveal(?:ing)?)\b[^.!?\n]{0,25}\b(?:the\suser|this\s(?:note"
        r"|message|instruction|step|comment|line)|the\s(?:customer|reader|operator))\b",
        words="tell mention mentioning inform telling show showing reveal revealing",
    ),
    PatternRule(
        name="fake-authority",
        pattern=r"\b(?:i\sam|i'm|this\sis|speaking\sas|as)\s(?:your\s(?:developer|creator|operator"
        r"|owner|supervisor|administrator)|the\s(?:developer|administrator|sysadmin|operator"
        r"|supervising|red\steam|security\steam))\b",
        words="developer creator operator owner supervisor administrator sysadmin supervising team",
    ),
    PatternRule(
        name="decode-then-obey",
        pattern=r"\b(?:decode|decipher|unscramble|rot-?13|base-?64|hex|morse|binary|ascii|reversed?"
        r"|backwards|letters?)\b[^\n]{0,120}\b(?:follow|obey|execute|carry\sout|do\s(?:what|it|so)"
        r"|act\son|comply)\b",
        words="follow obey execute carry do act comply",
    ),
    PatternRule(name="binary-letters", pattern=r"\b[01]{8}\s[01]{8}\s[01]{8}\b"),
    PatternRule(
        name="numbered-letters", pattern=r"\b(?:(?:6[5-9]|[7-9]\d|1[01]\d|12[0-2]|32) ){8}"
    ),
    PatternRule(name="long-base64", pattern=r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/]{40,4000}={1,2}"),
    PatternRule(name="invisible-letters", pattern=r"[\u200b\u2060\U000e0020-\U000e007e]"),
    PatternRule(
        name="active-markup",
        pattern=r"<script\b|\bon(?:error|load|click)\s?=|javascript:|\\(?:immediate|write18)\b"
        r"|document\.(?:cookie|location)|!\[[^\]\n]{0,80}\]\(https?://[^)\s]{0,200}[?{]",
    ),
    PatternRule(
        name="hidden-markup",
        pattern=r"(?:left|top|text-indent):\s?-\d{3}|font-size:\s?[01]p|color:\s?(?:#fff|white)"
        r"|<font\scolor=.#0000|opacity:\s?0[;\"]",
    ),
    PatternRule(
        name="de-drop-orders",
        pattern=r"\b(?:ignorier|vergiss|vergessen|missacht)\w{0,6}\b[^.!?\n]{0,50}\b(?:anweisung"
        r"|regeln|vorgaben|vorherig|bisherig|obig)",
    ),
    PatternRule(
        name="romance-drop-orders",
        pattern=r"\b(?:ignor|oubli|olvid|dimentic|esque[c\u00e7]|descart)\w{1,6}\b[^.!?\n]{0,50}\b(?:instruc"
        r"|instru\u00e7|istruzion|consigne|r\u00e8gles|reglas|regole|regras|\u00f3rdenes|anterior)",
    ),
)
"""Written from the taxonomy and checked against `core-train` only."""
