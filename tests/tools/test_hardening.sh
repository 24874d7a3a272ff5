#!/usr/bin/env bash
# The protections that make an error in memory hard to exploit are on in installed programs: a table of functions that is read-only
# from the start, no fixed addresses, and, where it is optimized, the C library's checks of sizes; where the compiler has them, also stacks
# that cannot grow past their guard, and jumps that end only where functions begin.
# usage: test_hardening.sh 'checked|unchecked [FLAG]...' FILE [OBJECT]...: whether sizes are, and the compiler's flags; a program or module,
# and its own object files
set -euo pipefail
sizes=$1 file=$2
shift 2
failed() {
  echo "test_hardening: $file: $*" >&2
  exit 1
}

dynamic=$(readelf -dW "$file") segments=$(readelf -lW "$file") header=$(readelf -hW "$file")
[[ $dynamic == *BIND_NOW* ]] || failed 'its functions are looked up when they are first called (no -z now)'
[[ $segments == *GNU_RELRO* ]] || failed 'its table of functions stays writable (no -z relro)'
[[ $segments =~ GNU_STACK\ .*\ RW\  ]] || failed 'its stack is executable'
[[ $header == *'DYN ('* ]] || failed 'it lies at a fixed address'

# A large frame is touched page by page; a function begins with the mark of a jump's end.
code=$(objdump -d --no-show-raw-insn "$file")
[[ $sizes != *-fstack-clash-protection* || $(uname -m) != x86_64 ]] || (($(grep -cE 'orq? +\$0x0,\(%rsp\)' <<<"$code") > 5)) ||
  failed 'its stack can grow past the guard page (-fstack-clash-protection)'
[[ $sizes != *-fcf-protection* ]] || (($(grep -c endbr64 <<<"$code") > 100)) || failed 'jumps may end anywhere (-fcf-protection)'

! grep -q 'DT_ASSERT(' "$file" || [[ $sizes == unchecked* ]] || failed 'it checks assertions (base/assert.h)'

if (($#)); then undefined=$(nm -u "$@"); else undefined=$(nm -D -u "$file"); fi
checks=$(awk '/ __[a-z]+_chk/ && !/__stack_chk/ { print $NF }' <<<"$undefined" | sort -u | paste -sd ' ')
if [[ $sizes == unchecked* ]]; then
  [[ -z $checks ]] || failed "sizes are checked without an optimizer, or beside the sanitizers: $checks"
else
  [[ $checks == *__snprintf_chk* ]] || failed "sizes are not checked (_FORTIFY_SOURCE): $checks"
fi
