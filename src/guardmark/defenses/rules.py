"""The built-in rule set of the pattern defense: wordings that try to take over a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One regular expression with a name for reports.

    Attributes:
        name: What the reason of a decision says.
        pattern: A Python regular expression.
    """

    name: str
    pattern: str


_EARLIER = r"(?:previous|prior|earlier|above|preceding|former|foregoing|existing|original|initial)"
_ORDERS = (
    r"(?:instructions?|directions?|directives?|orders?|rules?|prompts?|guidelines?|guidance"
    r"|constraints?|restrictions?|polic(?:y|ies)|commands?|briefing)"
)
_DROP = (
    r"(?:ignore|disregard|forget|override|overrule|overwrite|discard|drop|bypass|skip|abandon"
    r"|set\s+aside|throw\s+out|pay\s+no\s+attention\s+to|stop\s+following)"
)
_TELL = (
    r"(?:reveal|print|show|repeat|output|display|disclose|recite|quote|paste|dump|leak|expose"
    r"|tell\s+me|give\s+me|write\s+out|spell\s+out|translate|summari[sz]e)"
)
_HIDDEN = (
    r"(?:system\s+(?:prompt|message|instructions?)|hidden\s+(?:prompt|instructions?|rules?)"
    r"|initial\s+(?:prompt|instructions?)|developer\s+(?:message|prompt)"
    r"|your\s+(?:own\s+)?(?:instructions|prompt|configuration|briefing|guidelines))"
)

BUILTIN_RULES = (
    Rule(name="drop-earlier-orders", pattern=rf"\b{_DROP}\b[^.!?\n]{{0,40}}\b{_EARLIER}\b"),
    Rule(
        name="drop-orders",
        pattern=rf"\b{_DROP}\b[^.!?\n]{{0,30}}\b(?:all|any|your|the|these|those)\b[^.!?\n]{{0,20}}\b{_ORDERS}\b",
    ),
    Rule(
        name="orders-no-longer-hold",
        pattern=rf"\b{_ORDERS}\b[^.!?\n]{{0,60}}\b(?:no\s+longer\s+(?:apply|hold|count|valid)|(?:are|is|have\s+been|has\s+been)\s+(?:void|revoked|cancell?ed|suspended|superseded|lifted|replaced|obsolete))",
    ),
    Rule(
        name="new-orders",
        pattern=rf"\b(?:new|updated|revised|replacement)\s+(?:system\s+)?{_ORDERS}\b\s*(?:[:=]|follow|are|from\s+now)",
    ),
    Rule(name="tell-hidden-text", pattern=rf"\b{_TELL}\b[^.!?\n]{{0,60}}\b{_HIDDEN}"),
    Rule(
        name="what-is-hidden-text",
        pattern=r"\bwhat\s+(?:is|are|was|were|does|do)\b[^.!?\n]{0,30}\byour\b[^.!?\n]{0,20}\b(?:system\s+prompt|hidden|instructions|first\s+message)",
    ),
    Rule(
        name="text-above-this",
        pattern=rf"\b{_TELL}\b[^.!?\n]{{0,40}}\b(?:everything|all|the\s+(?:text|words|content|lines?))\b[^.!?\n]{{0,20}}\b(?:above|before\s+this|preceding)\b",
    ),
    Rule(
        name="role-switch",
        pattern=r"\b(?:you\s+are\s+now|from\s+now\s+on,?\s+you(?:\s+are|'re|\s+will)|you\s+will\s+now\s+(?:be|act)|henceforth\s+you)\b",
    ),
    Rule(
        name="unbound-persona",
        pattern=r"\b(?:act|behave|respond|answer|speak|pretend|role-?play|imagine)\b[^.!?\n]{0,60}\b(?:without|free\s+(?:of|from)|no|not\s+bound\s+by|ignores?)\b[^.!?\n]{0,20}\b(?:restrictions?|filters?|limits?|limitations?|rules?|ethic\w*|guidelines?|censor\w*|safeguards?|morals?)\b",
    ),
    Rule(
        name="privileged-mode",
        pattern=r"\b(?:developer|debug|maintenance|admin(?:istrator)?|god|root|sudo|unrestricted|jailbreak|override|diagnostic|service)\s+mode\b",
    ),
    Rule(
        name="lift-safety",
        pattern=r"\b(?:disable|deactivate|switch\s+off|turn\s+off|suspend|lift|remove|relax)\b[^.!?\n]{0,30}\b(?:safety|safeguards?|filters?|guard\s?rails?|moderation|restrictions?|content\s+polic\w+|protections?)\b",
    ),
    Rule(
        name="no-refusal",
        pattern=r"\b(?:do\s+not|don't|never|must\s+not|no)\b[^.!?\n]{0,15}\b(?:refuse|refusals?|decline|apologi[sz]e|disclaimers?|warnings?\s+or\s+disclaimers?|say\s+(?:you\s+)?(?:can't|cannot))\b",
    ),
    Rule(
        name="begin-answer-with",
        pattern=r"\b(?:begin|start|open|preface)\b[^.!?\n]{0,25}\b(?:your\s+)?(?:answer|reply|response|output|message)\b[^.!?\n]{0,15}\bwith\b",
    ),
    Rule(
        name="answer-only",
        pattern=r"\b(?:reply|respond|answer|output|say|print|write|return)\b[^.!?\n]{0,25}\b(?:only|nothing\s+(?:but|else|except)|just|exactly|solely)\b[^.!?\n]{0,40}(?:[\"'`\u201c\u201e\u00ab]|\b[A-Z]{3,}[-_0-9A-Z]{2,}\b)",
    ),
    Rule(
        name="spoofed-turn",
        pattern=r"(?:^|\n)\s*(?:<\|?/?\s*(?:system|im_start|im_end|assistant|developer)\b|\[/?(?:system|inst|developer)\b|#{1,4}\s*(?:system|new\s+instructions?|instructions?\s+for\s+(?:the\s+)?(?:ai|assistant|model))\b|(?:system|developer)\s*(?:prompt|message|note|override)?\s*:)",
    ),
    Rule(
        name="spoofed-end",
        pattern=r"(?:={3,}|-{3,}|#{3,}|<{2,}|\*{3,})\s*end\s+(?:of\s+)?(?:user|system|input|question|document|text|data|prompt|context|message|config)",
    ),
    Rule(
        name="addressed-to-model",
        pattern=r"\b(?:note|message|attention|notice|instruction|important)\b[^.!?\n]{0,20}\b(?:to|for)\s+(?:the\s+|any\s+|all\s+)?(?:ai|a\.i\.|assistants?|language\s+models?|llms?|chat\s?bots?|models?|automated\s+(?:readers?|agents?|systems?)|summari[sz]ers?)\b",
    ),
    Rule(
        name="if-you-are-a-model",
        pattern=r"\bif\s+you(?:\s+are|'re)\s+(?:an?\s+)?(?:ai|assistant|language\s+model|llm|bot|agent|automated)\b",
    ),
    Rule(
        name="keep-from-user",
        pattern=r"\b(?:do\s+not|don't|never|without)\b[^.!?\n]{0,15}\b(?:tell|mention(?:ing)?|inform(?:ing)?|telling|alert(?:ing)?|notify(?:ing)?|reveal(?:ing)?)\b[^.!?\n]{0,25}\b(?:the\s+user|this\s+(?:note|message|instruction|step|comment)|the\s+(?:customer|reader|operator))\b",
    ),
    Rule(
        name="send-away",
        pattern=r"\b(?:send|forward|post|upload|e-?mail|transmit|exfiltrate|append)\b[^.!?\n]{0,80}\b(?:conversation|chat\s+(?:history|log)|credentials?|passwords?|api[\s_-]?keys?|secrets?|tokens?|customer\s+(?:data|records|list)|contents?\s+of)\b[^\n]{0,80}(?:@|https?://|\bto\b)",
    ),
    Rule(
        name="ask-for-secrets",
        pattern=rf"\b{_TELL}\b[^.!?\n]{{0,50}}\b(?:passwords?|api[\s_-]?keys?|secret\s+(?:key|token|word|code)|access\s+tokens?|credentials|connection\s+string|environment\s+variables?)\b",
    ),
    Rule(
        name="fake-authority",
        pattern=r"\b(?:i\s+am|i'm|this\s+is|speaking\s+as)\b[^.!?\n]{0,25}\b(?:your\s+(?:developer|creator|administrator|operator|owner)|the\s+(?:developer|administrator|sysadmin|security\s+team|red\s+team)\b)",
    ),
    Rule(
        name="decode-then-obey",
        pattern=r"\b(?:decode|decipher|unscramble|rot-?13|base-?64|hex|morse|reverse)\b[^\n]{0,60}\b(?:and|then)\b[^\n]{0,20}\b(?:follow|obey|execute|carry\s+out|comply|do\s+what|answer|act)\b",
    ),
    Rule(
        name="purely-hypothetical",
        pattern=r"\b(?:hypothetical(?:ly)?|fiction(?:al)?|imaginary|novel|screenplay|thought\s+experiment)\b[^\n]{0,160}\b(?:no\s+(?:laws?|rules|limits|restrictions)|step[\s-]by[\s-]step|in\s+(?:full|exact)\s+detail|without\s+(?:warnings?|disclaimers?))\b",
    ),
    Rule(
        name="de-drop-orders",
        pattern=r"\b(?:ignorier\w*|vergiss|vergessen\s+sie|missachte\w*)\b[^.!?\n]{0,50}\b(?:anweisung\w*|regeln|vorgaben|vorherig\w*|bisherig\w*|obig\w*|system\w*)",
    ),
    Rule(
        name="fr-drop-orders",
        pattern=r"\b(?:ignore[rz]?|oublie[rz]?|ne\s+tiens\s+pas\s+compte)\b[^.!?\n]{0,50}\b(?:instructions?|consignes?|r\u00e8gles|directives?|pr\u00e9c\u00e9dent\w*)",
    ),
    Rule(
        name="es-drop-orders",
        pattern=r"\b(?:ignora\w*|olvida\w*|descarta\w*)\b[^.!?\n]{0,50}\b(?:instruccion\w*|reglas|\u00f3rdenes|indicaciones|anterior\w*)",
    ),
    Rule(
        name="it-drop-orders",
        pattern=r"\b(?:ignora\w*|dimentica\w*|trascura\w*)\b[^.!?\n]{0,50}\b(?:istruzion\w*|regole|direttive|precedent\w*)",
    ),
    Rule(
        name="pt-drop-orders",
        pattern=r"\b(?:ignore|ignora\w*|esque\u00e7a\w*|desconsidere)\b[^.!?\n]{0,50}\b(?:instru\u00e7\w*|regras|ordens|anterior\w*)",
    ),
)
"""Written from the taxonomy, not fitted to any data set. Matched without regard to case."""
