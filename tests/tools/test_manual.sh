#!/usr/bin/env bash
# What is generated from the program's tables is committed as it would be generated now; the manual pages have nothing that mandoc
# complains about, and every command and option of the help.
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
((n >= 4)) || fail "only $n files are generated"

pages=("$source"/docs/dtrain.1 "$source"/docs/dtrain-config.5)
n=0
while read -r command; do
  grep -qxF ".Ss $command" "${pages[0]}" || fail "dtrain.1 lacks the command $command"
  read -ra words <<<"$command"
  while read -r option; do
    grep -qE "^\.It Fl -$option( |\$)" "${pages[0]}" || fail "dtrain.1 lacks --$option of $command"
    n=$((n + 1))
  done < <("$dtrain" help "${words[@]}" | sed -n 's/^  --\([a-z_-]*\).*/\1/p')
done < <("$dtrain" help | awk '/^Commands/ { inside = 1; next } inside && NF == 0 { exit }
  inside && /^  [^ ]/ { sub(/^  /, ""); sub(/  +.*/, ""); if (length > 25) $0 = substr($0, 1, 25); sub(/ +$/, ""); print }')
((n > 50)) || fail "only $n options are found in the help"

if command -v mandoc >/dev/null; then
  for page in "${pages[@]}"; do
    # What is not installed here says nothing about the page; nor does an index that is not up to date.
    said=$(mandoc -T lint -W style "$page" 2>&1 | grep -vE 'referenced manual not found|mandoc.db' || true)
    [[ -z $said ]] || fail "mandoc complains: $said"
  done
else
  echo 'mandoc is not installed'
fi
if command -v groff >/dev/null; then
  for page in "${pages[@]}"; do
    said=$(LC_ALL=C.UTF-8 groff -ww -mandoc -Tutf8 -K utf8 "$page" 2>&1 >/dev/null || true)
    [[ -z $said ]] || fail "groff complains about $page: $said"
  done
else
  echo 'groff is not installed'
fi
