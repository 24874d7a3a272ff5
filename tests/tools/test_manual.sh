#!/usr/bin/env bash
# Committed files that are generated from the program's tables equal those generated now; the manual pages have every command and
# option of the help, scdoc makes pages of them, and mandoc and groff have nothing to complain about in those.
# usage: test_manual.sh SOURCE_DIR MAKE_DOCS DTRAIN
set -euo pipefail
source=$1 make_docs=$2 dtrain=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'test_manual: %s\n' "$*" >&2
  exit 1
}

while read -r file; do
  mkdir -p "$work/$(dirname "$file")"
done < <("$make_docs" --list)
"$make_docs" "$work"
n=0
while read -r file; do
  diff -u "$source/$file" "$work/$file" >"$work/diff" ||
    { head -n 40 "$work/diff"; fail "$file is out of date: cmake --build <build folder> --target docs"; }
  n=$((n + 1))
done < <("$make_docs" --list)
((n >= 2)) || fail "only $n files are generated"

"$make_docs" --manual "$work"
tr -d '\\' <"$work/dtrain.1.scd" >"$work/plain"
n=0
while read -r command; do
  grep -qxF "## $command" "$work/dtrain.1.scd" || fail "dtrain.1 lacks the command $command"
  read -ra words <<<"$command"
  while read -r option; do
    grep -qF -- "*--$option*" "$work/plain" || fail "dtrain.1 lacks --$option of $command"
    n=$((n + 1))
  done < <("$dtrain" help "${words[@]}" | sed -n 's/^  --\([a-z_-]*\).*/\1/p')
done < <("$dtrain" help | awk '/^Commands/ { inside = 1; next } inside && NF == 0 { exit }
  inside && /^  [^ ]/ { sub(/^  /, ""); sub(/  +.*/, ""); if (length > 25) $0 = substr($0, 1, 25); sub(/ +$/, ""); print }')
((n > 50)) || fail "only $n options are found in the help"

grep -qF '*train\.optimizer\.type*' "$work/dtrain-config.5.scd" || fail 'dtrain-config.5 lacks train.optimizer.type'

if ! command -v scdoc >/dev/null; then
  echo 'scdoc is not installed'
  exit 0
fi
for page in "$work"/dtrain.1 "$work"/dtrain-config.5; do
  scdoc <"$page.scd" >"$page" || fail "scdoc refuses $page.scd"
  if command -v mandoc >/dev/null; then
    said=$(mandoc -T lint -W error "$page" 2>&1 || true)
    [[ -z $said ]] || fail "mandoc complains: $said"
  fi
  if command -v groff >/dev/null; then
    said=$(LC_ALL=C.UTF-8 groff -ww -mandoc -Tutf8 -K utf8 "$page" 2>&1 >/dev/null || true)
    [[ -z $said ]] || fail "groff complains about $page: $said"
  fi
done
