#!/bin/sh
# What action.yml runs: start the service, wait for it, measure and gate, write outputs, keep the
# baseline. Everything comes through the environment: CONFIG OUT BASELINE POLICY FAIL_ON VARIABLES
# START WAIT_ON WAIT_SECONDS. Exit code 0: how the job ends stands in the output `job-code`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-guard-gate}
kept=.guardmark-baseline
mkdir -p "$out"

tell() { # NAME VALUE: an output of the step
  if [ -n "${GITHUB_OUTPUT:-}" ]; then printf '%s=%s\n' "$1" "$2" >> "$GITHUB_OUTPUT"; fi
}

finish() { # VERDICT CODE JOB-CODE
  tell verdict "$1"
  tell exit-code "$2"
  tell job-code "$3"
  echo "guardmark: $1"
  exit 0
}

refuse() { # WHAT
  echo "guardmark: $1" >&2
  finish failed 2 2
}

case ${FAIL_ON:-undecided} in
  undecided | broken | never) ;;
  *) refuse "fail-on is undecided, broken or never, not ${FAIL_ON}" ;;
esac

# Lines NAME=VALUE are set here and nowhere written: a value may be a key.
while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  name=${line%%=*}
  case $name in
    "$line" | '' | [0-9]* | *[!A-Za-z0-9_]*) refuse "env has a line that is not NAME=VALUE" ;;
  esac
  export "$name=${line#*=}"
done <<LINES
${VARIABLES:-}
LINES

service=
stop() {
  if [ -n "$service" ]; then
    kill "$service" 2> /dev/null
    wait "$service" 2> /dev/null
    service=
  fi
}
trap stop EXIT INT TERM

if [ -n "${START:-}" ]; then
  sh -c "exec $START" > "$out/service.log" 2>&1 &
  service=$!
fi
if [ -n "${WAIT_ON:-}" ]; then
  python "$here/wait_on.py" "$WAIT_ON" "${WAIT_SECONDS:-60}" "${service:-0}"
  waited=$?
  if [ "$waited" -ne 0 ]; then
    if [ -f "$out/service.log" ]; then tail -n 20 "$out/service.log" >&2; fi
    refuse "$WAIT_ON did not answer within ${WAIT_SECONDS:-60} s"
  fi
fi

baseline=${BASELINE:-none}
case $baseline in
  auto)
    baseline=
    if [ -d "$kept/run" ]; then
      # Without a margin nobody has said how much worse is accepted: told, and no limit.
      if grep -q regression_margin "$CONFIG" ${POLICY:+"$POLICY"}; then
        baseline=$kept/run
      else
        COMPARE_WITH=$kept/run
        export COMPARE_WITH
      fi
    else
      FIRST=true
      export FIRST
    fi
    ;;
  none) baseline= ;;
esac

sh "$here/gate.sh" "$CONFIG" "$out" "$baseline" "${POLICY:-}"
code=$?
stop
case $code in
  0) verdict=passed ;;
  1) verdict=broken ;;
  5) verdict=undecided ;;
  *) finish failed "$code" "$code" ;;
esac
if [ "$verdict" = passed ]; then
  rm -rf "$kept"
  mkdir -p "$kept"
  cp -R "$out/run" "$kept/run"
fi
job=$code
case ${FAIL_ON:-undecided}:$verdict in never:* | broken:undecided) job=0 ;; esac
finish "$verdict" "$code" "$job"
