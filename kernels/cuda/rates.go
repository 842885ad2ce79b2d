//go:build cuda

package cuda

import (
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/kernels"
)

var _ = kernels.RegisterRates("cuda", ratesOf)

// makersRates are dense rates of bf16 and of float32, and of memory, by NVIDIA's data sheets; the first whose words
// are all in a device's name is taken.
var makersRates = []struct {
	words                string
	half, single, memory float64
}{
	{"GB200", 2.5e15, 80e12, 8e12},
	{"B200", 2.25e15, 75e12, 8e12},
	{"GH200", 989.4e12, 66.9e12, 4.8e12},
	{"H200", 989.4e12, 66.9e12, 4.8e12},
	{"H100 PCIe", 756e12, 51.2e12, 2e12},
	{"H100 NVL", 835e12, 60e12, 3.9e12},
	{"H100", 989.4e12, 66.9e12, 3.35e12},
	{"H800", 989.4e12, 66.9e12, 3.35e12},
	{"A100 80GB PCIe", 312e12, 19.5e12, 1.935e12},
	{"A100 80GB", 312e12, 19.5e12, 2.039e12},
	{"A100", 312e12, 19.5e12, 1.555e12},
	{"A800", 312e12, 19.5e12, 2.039e12},
	{"L40S", 362e12, 91.6e12, 864e9},
	{"L4", 121e12, 30.3e12, 300e9},
	{"A10G", 70e12, 35e12, 600e9},
	{"A10", 125e12, 31.2e12, 600e9},
	{"RTX 4090", 165.2e12, 82.6e12, 1.008e12},
	{"RTX 3090", 71e12, 35.6e12, 936e9},
}

// ratesOf are the rates of a device of this machine, the first one if none is named.
func ratesOf(which string) kernels.Peaks {
	l, err := Load()
	if err != nil {
		return kernels.Peaks{}
	}
	index, _ := strconv.Atoi(which) // what is no number is refused where the device is opened
	info, err := l.Describe(index)
	if err != nil {
		return kernels.Peaks{}
	}
	return ratesNamed(info.Name)
}

func ratesNamed(name string) kernels.Peaks {
	fields := strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' })
	for _, r := range makersRates {
		found := true
		for _, word := range strings.Fields(r.words) {
			here := false
			for _, f := range fields {
				here = here || f == word
			}
			found = found && here
		}
		if found {
			return kernels.Peaks{TeamTiles: r.half, TeamMultiplyAdd: r.single, Memory: r.memory}
		}
	}
	return kernels.Peaks{}
}
