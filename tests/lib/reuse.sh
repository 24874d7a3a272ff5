#!/usr/bin/env bash
# For tests that build a copy of the sources: a compiler's launcher that takes an object from the build under test, where the same command
# has made it of the same source, and compiles everything else.
#
# usage: reuse.sh --list SOURCE_DIR BUILD_DIR FILE  writes the commands of that build into FILE
#        reuse.sh COMPILER ARGUMENT...              in the copy's build folder, as CMAKE_C_COMPILER_LAUNCHER and CMAKE_CUDA_COMPILER_LAUNCHER
# wants $REUSE_COPY, the copy's folder, $REUSE_BUILD, the build under test, and $REUSE_LIST, the file of its commands.
set -eu
if [[ $1 == --list ]]; then
  # Objects that include a header of the build folder, such as the commit, are not listed: they differ.
  sed -n 's|^ *"command": "\(.*\)",$|\1|p' "$3/compile_commands.json" |
    sed -E 's|\\\\\\"|"|g' | sed -E "s|^[^ ]*ccache ||; s|$3|BUILD|g; s|$2|SOURCE|g; s#( -Werror=all-warnings -Xcompiler=| )-Werror\b##g; / -IBUILD/d" >"$4"
  exit
fi
[[ $* =~ ^(.*)' -MD -MT '([^ ]+)' -MF '([^ ]+)(.*)$ ]] || exec "$@"
object=${BASH_REMATCH[2]} dependencies=${BASH_REMATCH[3]}
command=${BASH_REMATCH[1]}${BASH_REMATCH[4]}
command=${command//"$PWD"/BUILD}
grep -qxF -- "${command//"$REUSE_COPY"/SOURCE}" "$REUSE_LIST" || exec "$@"
cp "$REUSE_BUILD/$object" "$object"
printf '%s:\n' "$object" >"$dependencies"
