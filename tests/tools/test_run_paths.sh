#!/usr/bin/env bash
# The folders in which what we build and install looks for libraries (RPATH, RUNPATH) are named from the root: an empty or relative one
# is the working folder, where anybody may have put a library that would run.
# usage: test_run_paths.sh BUILD_DIR CMAKE CC
# shellcheck disable=SC2016 # ld.so replaces ORIGIN
set -euo pipefail
build=$1 cmake=$2 cc=$3
command -v readelf >/dev/null || { echo 'skipped: needs readelf (binutils)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'test_run_paths: %s\n' "$*" >&2
  exit 1
}

# Prints FILE: PATHS of each file below a folder that has such paths.
run_paths() {
  find "$1" -type f ! -name '*.[oa]' \( -perm -u+x -o -name '*.so*' \) -exec readelf -d /dev/null {} + 2>/dev/null |
    sed -nE 's/^File: //; t keep; s/.*Library r(un)?path: \[(.*)\]$/\2/; t tell; b; :keep; h; b; :tell; G; s/(.*)\n(.*)/\2: \1/p'
}

# Those of them with a part that is not named from the root.
relative() {
  run_paths "$1" | grep -vE ': (/|\$ORIGIN)[^:]*(:(/|\$ORIGIN)[^:]*)*$' || true
}

mkdir "$work/wrong" "$work/right"
for path in '' /a: :/a /a::/b lib /a:lib; do
  echo | env LD_RUN_PATH="${path:-:}" "$cc" -shared -x c - -o "$work/wrong/${path//\//-}.so" 2>"$work/log" || fail "$(cat "$work/log")"
done
echo | env LD_RUN_PATH='/a:$ORIGIN/b' "$cc" -shared -x c - -o "$work/right/right.so"
(($(relative "$work/wrong" | wc -l) == 6)) || fail "of six wrong files it finds: $(relative "$work/wrong")"
[[ $(run_paths "$work/right") == *'right.so: /a:$ORIGIN/b' && -z $(relative "$work/right") ]] || fail "$(run_paths "$work/right")"

"$cmake" --install "$build" --prefix "$work/installed" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
for top in "$build" "$work/installed"; do
  found=$(relative "$top")
  [[ -z $found ]] || fail "libraries are looked for in the working folder (is LD_RUN_PATH set, with an empty part?):
$found"
done
echo "$(run_paths "$build" | wc -l) files of the build name folders of libraries, all from the root"
