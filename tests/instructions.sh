#!/usr/bin/env bash
# Counts the instructions of some runs of the CPU backend under callgrind, one thread at the level of AVX2, and compares
# them with tests/instructions.tsv: more than 2 % off, in either direction, is an error. Unlike times, counts are the same
# on a busy machine. They depend on the compiler and on the profile (that of tests): `tests/instructions.sh --update`
# writes them anew.
set -euo pipefail
cd "$(dirname "$0")/.."
table=tests/instructions.tsv
# Counts depend on how the compiler splits a crate, which this decides. What was built otherwise would be taken as it is, so
# this has a folder of its own.
export CARGO_INCREMENTAL=1 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/counts"
cargo build --quiet -p paceline-tests --example instruction_counts
program="$CARGO_TARGET_DIR/debug/examples/instruction_counts"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$program" | while read -r name; do
    valgrind --quiet --tool=callgrind --callgrind-out-file="$work/out" --collect-atstart=no \
        --toggle-collect='*instruction_counts*counted*' "$program" "$name" 2>"$work/errors" ||
        { cat "$work/errors" >&2; exit 1; }
    printf '%s\t%s\n' "$name" "$(sed -n 's/^summary: //p' "$work/out")"
done >"$work/table"
if [ "${1:-}" = --update ]; then
    cp "$work/table" "$table"
    exit
fi
awk -F '\t' '
    NR == FNR { expected[$1] = $2; next }
    { seen[$1] = 1 }
    !($1 in expected) { print $1 ": not in the table"; bad = 1; next }
    {
        change = ($2 / expected[$1] - 1) * 100
        printf "%-16s %12d instructions, %+.2f %%\n", $1, $2, change
        if (change > 2 || change < -2) bad = 1
    }
    END {
        for (name in expected) if (!(name in seen)) { print name ": was not run"; bad = 1 }
        exit bad
    }
' "$table" "$work/table" || {
    echo "instruction counts changed: if that is meant, run tests/instructions.sh --update" >&2
    exit 1
}
