module github.com/lfactor/lfactor/kernels/cuda/gorgonia

go 1.26.0

require (
	github.com/lfactor/lfactor v0.0.0
	github.com/stretchr/testify v1.12.1
	gorgonia.org/cu v0.9.6
)

require (
	github.com/ebitengine/purego v0.11.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
)

replace github.com/lfactor/lfactor => ../../..
