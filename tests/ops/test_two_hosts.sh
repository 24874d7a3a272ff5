#!/usr/bin/env bash
# Two hosts, as network namespaces with a link for data and one for the launcher. A link that is cut for a while harms nothing; cut for ever,
# each side names the other, and all ranks are gone soon after the limit, whichever links are cut. usage, as root: test_two_hosts.sh
# shellcheck disable=SC2154,SC2317 # of cli_lib.sh; functions that wait_for calls
# shellcheck source=tests/lib/cli_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/cli_lib.sh"
a=dtrain-$$-a b=dtrain-$$-b
skip() { echo "skipped: $1"; exit 77; }
command -v ip >/dev/null || skip 'no ip (apt-get install iproute2)'

remove_hosts() {
  local pid
  for pid in $(processes_of "$work"); do kill -KILL "$pid" 2>/dev/null; done
  ip netns del "$a" 2>/dev/null
  ip netns del "$b" 2>/dev/null
  clean_up
}
trap remove_hosts EXIT

make_hosts() { # 10.78 for data, 10.79 for the launcher
  local link net
  ip netns add "$a" && ip netns add "$b" && ip -n "$a" link set lo up && ip -n "$b" link set lo up || return 1
  for link in data control; do
    net=10.$([[ $link == data ]] && echo 78 || echo 79).0
    ip link add "$link" netns "$a" type veth peer name "$link" netns "$b" || return 1
    ip -n "$a" addr add "$net.1/24" dev "$link" && ip -n "$b" addr add "$net.2/24" dev "$link" || return 1
    ip -n "$a" link set $link up && ip -n "$b" link set $link up || return 1
  done
}
are_up() { [[ $({ ip -n "$a" link; ip -n "$b" link; } | grep -cE '(data|control)@.* state UP ') -eq 4 ]]; } # the kernel takes a second
make_hosts 2>err || skip "no network namespaces here: $(head -n 1 err)"

on() { # on HOST COMMAND...: with a name, memory and links of its own
  local host=$1
  shift
  # shellcheck disable=SC2016 # for the inner shell
  ip netns exec "$host" unshare --uts --ipc bash -c 'hostname "$0" && exec "$@"' "${host: -1}" "$@"
}
on "$b" true 2>err || skip "no namespaces for names here: $(head -n 1 err)"
check 'links do not come up' wait_for 20 are_up
# Stands in for the launcher's ssh: options, the host, a command line.
cat >ssh <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
shift
exec ip netns exec $b unshare --uts --ipc bash -c "hostname b && exec \$*"
END
chmod +x ssh

configure '[1, 8, 8]' 'flatten dense10' '
  "data": { "format": "synthetic", "train_samples": 640, "test_samples": 64 },
  "train": { "epochs": 1000, "batch": { "per_rank": 8 } }, "log": { "every_steps": 1 }, "checkpoint": { "every_epochs": 0 },
  "threads": 1'

start() { # start RUN LIMIT ARGUMENT...: two ranks on each host; sets job
  local run=$1 limit=$2
  shift 2
  DTRAIN_TIMEOUT=$limit UCX_TLS=tcp,self UCX_NET_DEVICES=data on "$a" "$MPIEXEC" -launcher ssh -launcher-exec "$work/ssh" -localhost 10.79.0.1 \
    -iface control -hosts 10.79.0.1:2,10.79.0.2:2 -n 4 "$DTRAIN" --config config.json --run "$work/$run" "$@" >"$run.out" 2>"$run.err" </dev/null &
  job=$!
  check "$run: makes no steps" wait_for 60 has_epoch "$run"
}
cut_links() { for link; do ip -n "$a" link set "$link" down; done; }
mend_links() { for link; do ip -n "$a" link set "$link" up; done; }
no_ranks() { [[ -z $(ranks_of "$work/$1") ]]; }
names_other_hosts() { grep -c '^dtrain: .* stalled for [0-9]* s: .*one on another host, or the network, does not answer' "$1.err"; }

# Three seconds: TCP sends again, and nothing has happened.
start while 10 --set train.max_steps=400 --inject slow:rank=0,ms=10
check 'not two hosts' test "$(grep -cE '^ +[0-3] +[ab] ' while.err)" -eq 4
cut_links data
sleep 3
mend_links data
got=0
wait "$job" || got=$?
is 'cut for 3 s: exit code' 0 "$got"
check 'cut for 3 s: no result' grep -q '^test accuracy .* after 20 epochs' while.out

# For ever, with a limit of 3 s. A host that sees nobody silent waits 1.5 s longer; 3 s more are allowed, and 10 for a busy machine.
for links in data 'data control'; do
  run=cut-${links/ /-}
  start "$run" 3
  # shellcheck disable=SC2086 # one or two
  cut_links $links
  begin=$SECONDS
  check "$run: ranks are left" wait_for 30 no_ranks "$run"
  check "$run: gone after $((SECONDS - begin)) s" test $((SECONDS - begin)) -le 18
  if [[ $links == data ]]; then
    check "$run: processes are left" wait_for 20 gone "$work/$run"
    is "$run: hosts that tell" 2 "$(names_other_hosts "$run")"
  else # the launcher may wait for the host that it has lost
    check "$run: this host does not tell: $(tail -n 3 "$run.err")" test "$(names_other_hosts "$run")" -ge 1
    wait_for 5 gone "$work/$run" || kill -KILL "$job" 2>/dev/null
    check "$run: processes are left" wait_for 20 gone "$work/$run"
  fi
  got=0
  wait "$job" || got=$?
  [[ $links != data ]] || is "$run: exit code" 76 "$got"
  mend_links data control
  check "$run: links do not come up" wait_for 20 are_up
  DTRAIN_TIMEOUT=20 train "$run" 4 --resume --set train.max_steps=400
done

# The launcher's link alone: the training ends, and then the ranks that cannot leave.
start control 3 --set train.max_steps=400 --inject slow:rank=0,ms=5
cut_links control
check 'control: ranks are left' wait_for 60 no_ranks control
check 'control: the training did not end' grep -q '"exit_code":[[:space:]]*0' control/summary.json
kill -KILL "$job" 2>/dev/null
check 'control: processes are left' wait_for 20 gone "$work/control"
finish
