#!/bin/sh
# Measure, gate, and leave what a pipeline shows: a comment, JUnit XML, SARIF.
#   gate.sh CONFIG OUT [BASELINE] [POLICY]
# Exit code: that of `guardmark gate` (0 held, 1 broken, 5 the data cannot decide), or that of
# `guardmark run` when it could not finish.
set -u
config=$1 out=$2 baseline=${3:-} policy=${4:-}
mkdir -p "$out"

guardmark run "$config" -o "$out/run" > "$out/run.txt"
ran=$?
cat "$out/run.txt"
# 1 and 5 say how the limits of the configuration stand: the run itself is whole.
case $ran in 0 | 1 | 5) ;; *) exit "$ran" ;; esac

# FIRST=true: nothing is out yet, so no rate can have risen.
first=
if [ "${FIRST:-}" = true ] && [ -z "$baseline" ]; then first=--first; fi
# COMPARE_WITH: a run that is told in the comment, without a limit on how much worse is accepted.
beside=${baseline:-${COMPARE_WITH:-}}
# Code scanning is shown what is new, without texts, at the line of the defense.
guardmark gate "$out/run" ${policy:+--policy "$policy"} ${baseline:+--baseline "$baseline"} $first \
  --sarif "$out/guardmark.sarif" --config "$config" ${beside:+--since "$beside"} \
  --junit "$out/junit.xml" --markdown > "$out/comment.md"
verdict=$?
case $verdict in 0 | 1 | 5) ;; *) exit "$verdict" ;; esac
if [ -n "$beside" ]; then
  guardmark compare "$beside" "$out/run" --markdown --no-texts >> "$out/comment.md" || exit $?
fi

cat "$out/comment.md"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then cat "$out/comment.md" >> "$GITHUB_STEP_SUMMARY"; fi
# A run that is not to be trusted is no pass, whatever its limits say.
if [ "$verdict" -eq 0 ]; then verdict=$ran; fi
exit "$verdict"
