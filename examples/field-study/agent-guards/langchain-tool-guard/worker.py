"""langchain-tool-guard's policy of outputs that its README starts with, told to block."""

from langchain_tool_guard import OutputPolicy
from langchain_tool_guard.processors import process_output

policy = OutputPolicy(
    max_output_chars=8000,
    flag_injection_phrases=True,
    on_injection_flag="block",
    scan_encoded_injection_phrases=False,
    normalize_leetspeak_injection_phrases=False,
)


def check(text):
    return process_output("errands", policy, text).blocked
