#!/bin/bash
# Holds what lfactor cluster manifest prints to the schemas that Kubernetes' API servers publish.
# pip install kubernetes-validate; bash bench/golden/manifest.sh run.yaml
set -euo pipefail
go run ./cmd/lfactor cluster manifest "$1" --image lfactor:1 --hosts 4 --gpus 8 --cpu 8 --memory 64Gi --claim data \
  --secret keys --namespace lab > /tmp/manifest.yaml
for version in 1.28 1.34; do kubernetes-validate --strict -k "$version" /tmp/manifest.yaml; done
