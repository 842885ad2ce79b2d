#!/bin/bash
# One visit to a machine with an NVIDIA GPU, in under ten minutes.
#
#   bench/gpu.sh build           where Go is: makes what the visit needs, in .gpu/
#   bench/gpu.sh cudnn FOLDER    where cuDNN's wheel is unpacked: packs the three libraries that are needed, in .gpu2/
#   bench/gpu.sh run [FOLDER]    where the GPU is: writes what was found to FOLDER ($OUT, else bench/results/DATE)
#
# Cheap facts come first, and what a part found is written when the part has ended. A part that fails, hangs or is lost is
# named as such and does not keep the others from running. FOLDER has summary.txt, logs.tgz and, of libraries, what was
# chosen. The exit code is 1 if a part failed. What PyTorch reaches is measured in the same visit (bench/gpu_torch.py).
#
# In the environment: GPU_SECONDS, the time for all (570); and for a visit to the emulated driver that LFACTOR_LIBCUDA names,
# GPU_STEP, the arguments of `lfactor bench step`, GPU_OPS and GPU_BENCH, patterns of operations and benchmarks, GPU_SKIP, a
# pattern of parts to leave out, GPU_PROCS, how many processes conformance has, GPU_PROGRAMS, a folder with the programs as
# they are, GPU_LIMIT, the time for an operation.
set -uo pipefail
cd "$(dirname "$0")/.."

most=$((64 << 20)) # bytes that can be brought along

# weigh FOLDER says what a visit brings: the tracked files without testdata, and a folder.
weigh() {
  local tree parcel
  tree=$(git ls-files -z ':!:*testdata/*' | xargs -0 stat -c %s | awk '{n += $1} END {print n}')
  parcel=$(find "$1" -type f -printf '%s\n' | awk '{n += $1} END {print n + 0}')
  echo "$1 has $((parcel >> 20)) MiB; with the tree without testdata ($((tree >> 20)) MiB) that is $(((tree + parcel) >> 20)) of 64 MiB"
  [ $((tree + parcel)) -le $most ] || { echo "that is too much to be brought along" >&2; return 1; }
}

build() {
  set -e
  rm -rf .gpu
  mkdir -p .gpu
  CGO_ENABLED=0 go build -tags cuda -ldflags='-s -w' -o .gpu/lfactor ./cmd/lfactor
  CGO_ENABLED=0 go test -c -tags cuda -ldflags='-s -w' -o .gpu/cuda.test ./kernels/cuda
  xz -6 -T2 .gpu/lfactor .gpu/cuda.test
  weigh .gpu
  echo "git sparse-checkout set --no-cone '/*' '!testdata/' leaves testdata out of what is brought along"
}

cudnn() {
  set -e
  local lib
  lib=$(find "$1" -name 'libcudnn.so.9' -printf '%h' -quit)
  [ -n "$lib" ] || { echo "there is no libcudnn.so.9 below $1: pip download --no-deps nvidia-cudnn-cu13, and unpack it there" >&2; return 2; }
  rm -rf .gpu2
  mkdir -p .gpu2
  for name in libcudnn libcudnn_graph libcudnn_engines_runtime_compiled; do
    xz -9 -T2 -c "$lib/$name.so.9" >".gpu2/$name.so.9.xz"
  done
  weigh .gpu2
}

# say prints a line and keeps it.
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }

# keep packs what there is so far; a visit that is ended in the middle leaves the pack before.
keep() { tar -C "$logs" -czf "$out/.logs.tgz" . && mv "$out/.logs.tgz" "$out/logs.tgz"; }

# within SECONDS COMMAND… runs a command no longer than that, nor than the visit; 125 where no time is left.
within() {
  local left=$((end - SECONDS)) limit=$1
  shift
  [ $left -ge 2 ] || return 125
  timeout -k 5 $((limit < left ? limit : left)) "$@"
}

# told CODE is the word for how a part ended.
told() {
  case $1 in
  0) echo ok ;;
  124 | 137) echo "FAILED: it did not end in time" ;;
  125) echo "NOT RUN: no time was left" ;;
  *) echo "FAILED: exit code $1" ;;
  esac
}

# ended NAME CODE SECONDS [PATTERN] says how a part went, and shows what matters of its log.
ended() {
  [ "$2" -eq 0 ] || bad=1
  say "== $1: $(told "$2"), $3 s"
  if [ "$2" -eq 0 ]; then grep -aE "${4:-.}" "$logs/$1" | tail -n 12 | cut -c1-300 | tee -a "$out/summary.txt"
  else { grep -aE '^visit: .*(FAILED|HANGS|LOST)|^panic|--- FAIL' "$logs/$1" | head -n 20; tail -n 6 "$logs/$1"; } | cut -c1-300 | tee -a "$out/summary.txt"; fi
  keep
  return "$2"
}

# part NAME SECONDS PATTERN COMMAND…; one that is not installed is not a failure.
part() {
  local name=$1 limit=$2 pattern=$3 began=$SECONDS code
  shift 3
  [[ ! $name =~ ${GPU_SKIP:-^$} ]] || return 0
  if ! command -v "$1" >/dev/null; then
    say "== $name: left out, there is no $1 here"
    return 1
  fi
  within "$limit" "$@" >"$logs/$name" 2>&1
  code=$?
  ended "$name" $code $((SECONDS - began)) "$pattern"
}

# share NAME SECONDS TEST N OF runs every OF-th operation of a test from the N-th on, one by one; where an operation hangs or
# loses the device, another process goes on behind it. What is said goes to the log of the share, and how it ended to a file.
share() {
  local name=$1.$4 limit=$2 began=$SECONDS code worst=0 before
  : >"$work/$name"
  while :; do
    before=$(wc -l <"$work/$name")
    within $((limit - (SECONDS - began))) "$programs/cuda.test" -test.run "^$3\$" -test.v -visit "$work/$name" \
      -visit.limit "${GPU_LIMIT:-30s}" -visit.ops "${GPU_OPS:-.}" -visit.share "$4/$5" ${GPU_PLANT:+-visit.plant "$GPU_PLANT"} \
      >>"$work/$name.log" 2>&1
    code=$?
    [ $code -eq 0 ] || [ $code$worst = 125124 ] || worst=$code
    # beside those that ask for another process, a process that died in the middle of an operation is followed by one
    if [ $code -le 1 ] || [ $code -eq 125 ] || [ "$before" = "$(wc -l <"$work/$name")" ]; then break; fi
  done
  echo $worst >"$work/$name.code"
}

# conformance NAME SECONDS TEST runs a test operation by operation, in as many processes as there are processors, up to 16: what
# takes time is their definition on the processor.
conformance() {
  local name=$1 limit=$2 began=$SECONDS worst=0 procs=${GPU_PROCS:-$(nproc)} n code
  [[ ! $name =~ ${GPU_SKIP:-^$} ]] || return 0
  [ "$procs" -le 16 ] || procs=16
  for ((n = 0; n < procs; n++)); do share "$name" "$limit" "$3" "$n" "$procs" & done
  wait
  : >"$logs/$name"
  for ((n = 0; n < procs; n++)); do
    cat "$work/$name.$n.log" >>"$logs/$name"
    code=$(cat "$work/$name.$n.code")
    [ "$code" -le $worst ] || worst=$code
  done
  say "$name: $(grep -acE '^visit: .* ok' "$logs/$name") operations passed, $(grep -acE '^visit: .*(FAILED|HANGS|LOST)' "$logs/$name") did not"
  say "$name: calls on the processor: $(sed -nE 's/^visit: (\S+) ok .*, ([0-9]+ of [0-9]+) calls on the processor/\1 \2/p' "$logs/$name" | paste -sd,)"
  ended "$name" $worst $((SECONDS - began)) '^visit: .* ok|SKIP|skipped'
}

# unpack brings the programs and libraries to where they can run, and finds PyTorch's libraries.
unpack() {
  local f
  programs=${GPU_PROGRAMS:-$work/programs}
  mkdir -p "$programs"
  for f in .gpu/*.xz .gpu2/*.xz; do
    [ -z "${GPU_PROGRAMS:-}" ] && [ -e "$f" ] || continue
    xz -dc "$f" >"$programs/$(basename "$f" .xz)" && chmod +x "$programs/$(basename "$f" .xz)"
  done
  [ ! -e "$programs/libcudnn.so.9" ] || export LFACTOR_LIBCUDNN=$programs/libcudnn.so.9
  [ -z "${GPU_PROGRAMS:-}" ] || return 0
  eval "$(python3 - 2>/dev/null <<'P'
import glob, importlib.util, os
found = importlib.util.find_spec("torch")
root = os.path.dirname(os.path.dirname(found.origin)) if found else "/nowhere"
for variable, name in (("LFACTOR_LIBCUBLASLT", "libcublasLt.so.1[23]"), ("LFACTOR_LIBNCCL", "libnccl.so.2"), ("LFACTOR_LIBCUDNN", "libcudnn.so.9")):
    l = sorted(glob.glob(f"{root}/nvidia/*/lib/{name}"))
    if l and variable not in os.environ:
        print(f"export {variable}='{l[-1]}'")
P
)"
}

# losses FILE is what a step printed of losses; nothing is no losses.
losses() { grep -ao '"losses":[^]]*]' "$logs/$1" 2>/dev/null; }

run() {
  out=${1:-${OUT:-bench/results/$(date +%Y-%m-%d)}}
  end=$((SECONDS + ${GPU_SECONDS:-570})) bad=0
  mkdir -p "$out"
  work=$(mktemp -d) && logs=$work/logs && mkdir "$logs"
  trap 'rm -rf "$work"' EXIT
  : >"$out/summary.txt"
  say "visit of $(date -u '+%Y-%m-%d %H:%M') UTC, ${GPU_SECONDS:-570} s"
  unpack
  part device 10 . nvidia-smi
  part doctor 20 'cuda|cuDNN|NCCL|products|attention' "$programs/lfactor" doctor
  conformance conformance 150 TestHardware
  part lean 20 . "$programs/cuda.test" -test.run '^TestHardwareLean$' -test.v
  conformance libraries 90 TestHardwareLibraries
  part nccl 20 . "$programs/cuda.test" -test.run '^TestHardwareExchange$' -test.v
  part repeats 40 . "$programs/cuda.test" -test.run '^TestRepeats$' -test.v -hardware
  local step=("$programs/lfactor" bench step --device cuda)
  read -ra shape <<<"${GPU_STEP:---shape qwen3-0.6b --precision bf16 --seq 4096 --batch 4 --recompute none}"
  part layer 60 . "${step[@]}" "${shape[@]}" --layers 1 --steps 2 -o json
  part step 80 . "${step[@]}" "${shape[@]}" --steps 3 -o json
  part step_again 60 . "${step[@]}" "${shape[@]}" --steps 3 -o json
  local first again
  first=$(losses step) again=$(losses step_again)
  if [ -z "$first" ] || [ -z "$again" ]; then say "-- there are no losses of two runs to compare"
  elif [ "$first" = "$again" ]; then say "the losses of two runs are the same to the bit"
  else bad=1 && say "-- the losses of two runs differ: $first, then $again"; fi
  part where 60 'kernel|KERNEL|linear|attention|outside' "${step[@]}" "${shape[@]}" --steps 3 --profile="$work/where"
  part kernels 60 Benchmark "$programs/cuda.test" -test.run '^$' -test.bench "${GPU_BENCH:-.}"
  part torch 100 . python3 bench/gpu_torch.py
  part sanitizer 60 . compute-sanitizer --tool racecheck "$programs/cuda.test" -test.run '^TestHardware$' -visit.ops '^(linear|attention|attention_bwd|embed_dw)$' -visit.limit 60s
  say "visit ended after $SECONDS s"
  return $bad
}

case "${1:-}" in
build) build ;;
cudnn) cudnn "${2:?a folder}" ;;
run) run "${2:-}" ;;
*)
  sed -n '2,14p' "$0"
  exit 2
  ;;
esac
