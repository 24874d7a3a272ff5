#!/usr/bin/env bash
# A rank that hangs without a sign of life is named with its phase, and the job is gone, also where all ranks hang, or there is but one.
# usage: DTRAIN=... MPIEXEC=... test_watchdog.sh STUCK: dtrain, which hangs where STUCK_IN says (stuck.c)
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
stuck=$1
configure '[1, 8, 8]' 'flatten dense12:relu dense10' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 60 },
  "train": { "epochs": 2, "seed": 5, "batch": { "per_rank": 16 }, "optimizer": { "type": "adam", "lr": 0.002 } }, "device": "cpu",
  "checkpoint": { "every_steps": 5 }, "threads": 1'
export DTRAIN_TIMEOUT=2

named() { # named RUN WORDS: 76, nothing left, and one line of error, with these words
  check "$1: exit code $got" test "$got" -eq 76
  check "$1: processes are left" wait_for 20 gone "$work/$1"
  check "$1: lines of error" test "$(grep -c '^dtrain: ' "$1.err")" -eq 1
  grep -qE "^dtrain: $2" "$1.err" || fail "$1: no '$2'" <(tail -n 3 "$1.err")
}
kept() { # kept RUN RANKS: the folder has the code, the line that was printed, and each rank's last events
  check "$1: status.json and the flight records" python3 - "$1" "$1.err" "$2" <<'PY'
import json, sys
run, err, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
status = json.load(open(run + "/status.json"))
lines = [line.removeprefix("dtrain: ").strip() for line in open(err) if line.startswith("dtrain: ")]
assert status["exit_code"] == 76 and status["error"].startswith("rank ") | (status["error"] == lines[0]), (status, lines)
for rank in range(n):
    flight = json.load(open(f"{run}/flight-{rank}.json"))
    events = flight["events"]
    assert flight["rank"] == rank and 0 < len(events) <= 256 and events == sorted(events, key=lambda event: event["ns"]), flight
    assert {"phase", "step", "collective"} >= {event["kind"] for event in events}, events
    assert any(event["kind"] == "collective" and event["bytes"] > 0 for event in events), events
PY
}
reported() { # reported RUN WORDS: the report has the verdict, who was behind, and the last steps of each rank
  check "$1: no report" "$DTRAIN" report "$1" >"$1.report" 2>&1
  tr '\n' ' ' <"$1.report" | grep -E "$2" >/dev/null || fail "$1: the report has no '$2'" "$1.report"
  grep -qE '^failed \(exit code 76\): .*rank [0-9]' "$1.report" || fail "$1: the report's state" "$1.report"
  check "$1: the page has no last events" grep -q 'The last events of each rank' "$1/report.html"
}
silent='has shown no sign of life for 2 s: it hangs in'

# In a step, in a call to the system: one of one, all of three, one of three, whom the others name.
try alone 1 --inject stall:step=7
named alone "rank 0 \([^)]+\) $silent 'training', step 7, last event 'step'"
kept alone 1
reported alone 'Rank 0 \([^)]+\) was behind: in step 7 .* no sign of life for [0-9.]+ s\.'
try all 3 --inject stall:step=7
named all "rank [012] \([^)]+\) $silent 'training', step 7, .*; rank [012] .* was last seen [0-9]+ s ago in 'training'"
kept all 3
try one 3 --inject stall:rank=1,step=7
named one ".* stalled for 2 s: rank 1 has not arrived; it was last seen [0-9]+ s ago in 'training'"
kept one 3
reported one 'Rank 1 \([^)]+\) was behind: in step 7 it had begun'
check 'one: not the last event of rank 1' grep -qE '^ +7 +1  \+[0-9.]+ step$' one.report
check 'one: not those of rank 0' grep -qE "^ +7 +0  \+[0-9.]+ step, \+[0-9.]+ allreduce of gradient bucket 0 \([0-9]+ bytes\), .*results \(32 bytes\)$" one.report

hangs() { # hangs RUN RANKS FUNCTION CALL WHO WORDS
  STUCK_IN=$3 STUCK_CALL=$4 STUCK_RANKS=$5 program=$stuck try "$1" "$2"
  named "$1" "$6"
}
hangs loss 1 dt_network_loss 12 0 "rank 0 \([^)]+\) $silent 'training', step 12, "
hangs losses 2 dt_network_loss 12 01 "rank [01] \([^)]+\) $silent 'training', step 12, "
hangs data 1 dt_dataset_open 1 0 "rank 0 \([^)]+\) $silent 'data load', step 0, "
hangs mpi 2 MPI_Iallreduce 60 01 "rank [01] \([^)]+\) $silent '"
# A disk that never answers: nor does it to those who would keep what was.
hangs disk 1 fsync 5 0 "rank 0 \([^)]+\) has shown no sign of life for 10 s: it hangs in 'saving a checkpoint', step 5, "

# On the way out, when the training is over: the record of the end has the job's code, not the training's.
hangs leaving 1 dt_output_check 1 0 "rank 0 \([^)]+\) $silent '"
is 'leaving: status.json' 1 "$(grep -c '"exit_code":[[:space:]]*76,' leaving/status.json)"
hangs last 3 dt_output_check 1 2 ".*rank 2 "
is 'last: status.json' 1 "$(grep -c '"exit_code":[[:space:]]*76,' last/status.json)"

# One of two hosts hangs as a whole: nobody else there can name it.
MPIR_CVAR_NUM_CLIQUES=2 try host 2 --inject stall:rank=1,step=7
named host "rank 1 \([^)]+\) $silent 'training', step 7"

# Nothing is left of a hang that ended in time, nor of one in an earlier start.
try all 3 --resume
check "resumed: exit code $got" test "$got" -eq 0
check 'resumed: records of the hang are left' test -z "$(find all -name 'flight-*')"
try slow 2 --inject slow:rank=1,ms=1800,steps=7-7
check "slow: exit code $got" test "$got" -eq 0
check 'slow: records are left' test -z "$(find slow -name 'flight-*')"
finish
