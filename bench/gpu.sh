#!/bin/bash
# One visit to a machine with an NVIDIA GPU, in under ten minutes.
#
#   bench/gpu.sh build          where Go is: makes what the visit needs, in .gpu/
#   bench/gpu.sh run [FOLDER]   where the GPU is: writes what was found to FOLDER (bench/results/DATE)
#
# Cheap facts come first, and a step that fails does not keep the others from running. What PyTorch reaches is measured
# in the same visit (bench/gpu_torch.py); without PyTorch that part says so.
set -uo pipefail
cd "$(dirname "$0")/.."

build() {
  set -e
  mkdir -p .gpu
  CGO_ENABLED=0 go build -tags cuda -ldflags='-s -w' -o .gpu/lfactor ./cmd/lfactor
  CGO_ENABLED=0 go test -c -tags cuda -ldflags='-s -w' -o .gpu/cuda.test ./kernels/cuda
  ls -l .gpu
}

# part NAME SECONDS COMMAND… runs a command within a limit, keeps all it says, and shows the end.
part() {
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  timeout "$limit" "$@" >"$out/$name" 2>&1
  local code=$?
  tail -n 12 "$out/$name"
  [ $code -eq 0 ] || echo "-- $name: exit code $code"
}

run() {
  out=${1:-bench/results/$(date +%Y-%m-%d)}
  mkdir -p "$out"
  part device 10 nvidia-smi
  part doctor 20 .gpu/lfactor doctor
  part conformance 120 .gpu/cuda.test -test.run '^TestHardware$' -test.v
  echo "passed: $(grep -cE '^ +--- PASS' "$out/conformance"), failed: $(grep -cE '^ +--- FAIL' "$out/conformance")"
  part libraries 90 .gpu/cuda.test -test.run '^TestHardwareLibraries$' -test.v
  part nccl 20 .gpu/cuda.test -test.run '^TestHardwareExchange$' -test.v
  part sanitizer 60 compute-sanitizer .gpu/cuda.test -test.run '^TestHardware$/^reference$/^(rmsnorm|linear|attention|linear_ce_bwd)$'
  part kernels 60 .gpu/cuda.test -test.run '^$' -test.bench . # with how much longer products take beside copies to the host
  local step=(.gpu/lfactor bench step --device cuda --shape qwen3-0.6b --precision bf16 --seq 4096 --batch 4 --steps 3 -o json)
  part step 60 "${step[@]}"
  part step_again 60 "${step[@]}"
  if [ "$(grep -o '"losses":[^]]*' "$out/step")" = "$(grep -o '"losses":[^]]*' "$out/step_again")" ]; then
    echo "the losses of two runs are the same to the bit"
  else
    echo "-- the losses of two runs differ"
  fi
  part torch 100 python3 bench/gpu_torch.py
}

case "${1:-}" in
build) build ;;
run) run "${2:-}" ;;
*)
  sed -n '2,8p' "$0"
  exit 2
  ;;
esac
