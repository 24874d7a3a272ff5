# shellcheck shell=bash disable=SC2034
# Shared functions of these scripts: messages, and installing Debian packages. Sourced, not run.

# Debian 12, Debian 13 and Ubuntu 24.04 call them by the same names.
BUILD_PACKAGES=(gcc libc6-dev cmake ninja-build mpich libmpich-dev libcjson-dev zlib1g-dev libpng-dev libjpeg-dev libzip-dev libxxhash-dev
  libhwloc-dev libprotobuf-c-dev protobuf-c-compiler)
TEST_PACKAGES=(dataset-fashion-mnist python3 python3-venv) # python3 makes the damaged files
DOWNLOAD_PACKAGES=(curl ca-certificates)
EXIT_USAGE=64 EXIT_NO_INPUT=66 EXIT_UNAVAILABLE=69

say() { printf '%s\n' "$*" >&2; }
die() { # die <exit code> <text>
  say "${0##*/}: $2"
  exit "$1"
}

installed() { [[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]; }

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

apt_get() { # without questions, with retries and a time limit; shows its output on failure
  local output
  output=$(as_root env DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq -o Acquire::Retries=3 -o Acquire::http::Timeout=20 \
    -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=120 "$@" 2>&1 </dev/null) && return 0
  say "$output"
  return "$EXIT_UNAVAILABLE"
}

# need_packages <install: yes|no> <what for> <package>...: returns 69 if missing ones cannot or may not be installed.
need_packages() {
  local install=$1 why=$2 package missing=()
  shift 2
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system, so not checked: $why needs what Debian calls $*"
    return 0
  fi
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if [[ $install != yes ]]; then
    say "missing for $why: ${missing[*]} (install: apt-get install --no-install-recommends ${missing[*]})"
    return "$EXIT_UNAVAILABLE"
  fi
  if [[ $(id -u) -ne 0 ]] && ! command -v sudo >/dev/null; then
    say "missing for $why: ${missing[*]} (no sudo here; run as root: apt-get install --no-install-recommends ${missing[*]})"
    return "$EXIT_UNAVAILABLE"
  fi
  say "installing for $why: ${missing[*]}"
  apt_get update || say "apt-get update failed; trying with the package lists at hand"
  apt_get install -y --no-install-recommends "${missing[@]}"
}

# cuda_setting <asked: yes|no> <build folder> <a file that NVIDIA's driver makes>: prints DTRAIN_WITH_CUDA for the quickstart. A folder
# that was configured with CUDA keeps it.
cuda_setting() {
  if [[ $1 == yes ]]; then
    echo ON
  elif [[ -e $3 ]] || grep -qsE '^DTRAIN_WITH_CUDA:[A-Z]+=(AUTO|ON)$' "$2/CMakeCache.txt"; then
    echo AUTO
  else
    echo OFF
  fi
}

# isas_setting <build folder>: prints DTRAIN_ISAS for the quickstart. A folder that was configured with all keeps them.
isas_setting() {
  if grep -qs '^DTRAIN_ISAS:[A-Z]*=all$' "$1/CMakeCache.txt"; then echo all; else echo native; fi
}

find_mpirun() { # prints MPICH's launcher; if Open MPI is installed too, plain mpirun may be Open MPI's
  local name version
  for name in mpirun.mpich mpiexec.hydra mpirun; do
    command -v "$name" >/dev/null || continue
    # Not through a pipe: grep -q ends at its match, and a launcher that still writes would then fail.
    version=$("$name" --version 2>/dev/null </dev/null) || continue
    if [[ ${version,,} == *hydra* ]]; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

print_head() { # print_head <script>: its first comment, which is its help
  sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"
}
