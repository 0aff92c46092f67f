# Reads what a process writes until it ends: "done" where all went well, else the last words that
# Python's own signal handler wrote, or nothing.
said=$(cat)
[ "$said" = done ] && exit
printf '%s\n' "$said" | grep -E '^Fatal|^  File' | head -n 3 >&2
cat >&2 <<'WORDS'
guardmark ended at once: native code of a part crashed, or it was killed from outside (for its memory, perhaps). What is stored is kept.
Next: the same command goes on; if it ends again, give the function env or interpreter, by which a crash is an error of one sample.
WORDS
