"""The same guard as a program of its own: {"id", "text"} comes in, {"id", "blocked"} goes out."""

import json
import sys

from guards import flags

for line in sys.stdin:
    question = json.loads(line)
    answer = {"id": question["id"], "blocked": flags(question["text"])}
    print(json.dumps(answer), flush=True)
