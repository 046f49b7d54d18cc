#!/usr/bin/env bash
# Runs the conformance suite of the CPU backend under valgrind, at a level whose instructions it knows, and fails on
# any error that it finds in the use of memory.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --quiet -p paceline-backend-cpu --example conformance
program="${CARGO_TARGET_DIR:-target}/debug/examples/conformance"
status=0
valgrind --quiet --error-exitcode=9 --leak-check=no "$program" avx2 >/dev/null || status=$?
# The suite itself is judged elsewhere: valgrind's fused multiply-add differs from the processor's in signs of zero.
if [ "$status" -gt 1 ]; then
    echo "valgrind found errors, or the suite did not run: exit status $status" >&2
    exit 1
fi
echo "valgrind found nothing in the conformance suite"
