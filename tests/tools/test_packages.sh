#!/usr/bin/env bash
# The Debian packages and the archive that cpack makes of a build: complete, clean by lintian, and what they unpack to trains.
# usage: test_packages.sh BUILD_DIR CPACK MPIEXEC checked|unchecked
set -euo pipefail
build=$1 cpack=$2 mpiexec=$3 sizes=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for tool in "$cpack" dpkg-deb dpkg-shlibdeps gzip strip; do
  command -v "$tool" >/dev/null || { echo "skipped: needs $tool"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() {
  printf 'test_packages: %s\n' "$*" >&2
  cat log >&2
  exit 1
}

"$cpack" --config "$build/CPackConfig.cmake" -B "$work/made" >log 2>&1 </dev/null || fail 'cpack failed'
if grep -i warning log; then fail 'cpack warns'; fi
debs=(made/*.deb) archive=$(echo made/*.tar.gz)
n_debs=1
[[ ! -e $build/libdtrain_cuda.so ]] || n_debs=2
((${#debs[@]} == n_debs)) || fail "${#debs[@]} packages, expected $n_debs"

depends=$(dpkg-deb -f made/dtrain_*.deb Depends)
for package in libc6 libmpich12 libcjson1 libpng16 libjpeg libzip zlib1g; do
  [[ $depends == *$package* ]] || fail "the package does not depend on $package but on: $depends"
done
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error "${debs[@]}" >log 2>&1 || fail 'lintian found errors'
else
  echo 'lintian is not installed'
fi

mkdir deb
for deb in "${debs[@]}"; do dpkg-deb -x "$deb" deb; done
tar -xzf "$archive"
for file in bin/dtrain share/{dtrain/{configs/mnist.json,dtrain.sbatch,get-data},doc/dtrain/{README.md,docs/config.md}} \
  share/{bash-completion/completions/dtrain,fish/vendor_completions.d/dtrain.fish}; do
  [[ -e deb/usr/$file && -e $(echo dtrain-*/"$file") ]] || fail "a package lacks $file"
done
manual=(man/man1/dtrain.1 man/man5/dtrain-config.5)
for file in "${manual[@]/%/.gz}" doc/dtrain/{copyright,changelog.gz,changelog.Debian.gz} zsh/vendor-completions/_dtrain; do
  [[ -e deb/usr/share/$file ]] || fail "the package lacks $file"
done
for file in "${manual[@]}" doc/dtrain/LICENSE zsh/site-functions/_dtrain; do
  [[ -e $(echo dtrain-*/share/"$file") ]] || fail "the archive lacks $file"
done
"$here/test_hardening.sh" "$sizes" deb/usr/bin/dtrain
if readelf -dW deb/usr/bin/dtrain deb/usr/lib/dtrain/*.so 2>/dev/null | grep -E 'RPATH|RUNPATH'; then fail 'a program looks for libraries in a folder of its own'; fi

for top in deb/usr dtrain-*; do
  share=$top/share/dtrain
  "$top/bin/dtrain" plan --config "$share/configs/mnist.json" >log 2>&1 || fail "the program of $top does not run"
  # Without images they are generated.
  data=$("$share/get-data" --no-install 2>log </dev/null) && options=(--data "$data") || options=(--set data.format=synthetic)
  "$mpiexec" -np 2 "$top/bin/dtrain" --config "$share/configs/mnist.json" "${options[@]}" --run run --set train.epochs=1 \
    --set train.max_steps=5 >result 2>log </dev/null || fail "the program of $top does not train"
  grep -q '^test accuracy .* after 5 steps$' result || fail "no result: $(cat result)"
  rm -r run
done
printf 'packages: %s\n' "${debs[*]}"
