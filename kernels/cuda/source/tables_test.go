package source

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
)

// TestTables: the numbers of packed forms and of moments in eight bits are those of the definition, to the bit.
func TestTables(t *testing.T) {
	read := func(file, name string) (out []float32) {
		text, err := Files.ReadFile(file)
		require.NoError(t, err)
		body := regexp.MustCompile(name + `\[\d+\] = \{([^}]*)\}`).FindSubmatch(text)
		require.NotNil(t, body, name)
		for _, n := range regexp.MustCompile(`[-0-9.e]+f`).FindAllString(string(body[1]), -1) {
			v, err := strconv.ParseFloat(n[:len(n)-1], 32)
			require.NoError(t, err)
			out = append(out, float32(v))
		}
		return out
	}
	signed, unsigned := kernels.DynamicMap(true), kernels.DynamicMap(false)
	require.Equal(t, signed[:], read("dynamic.cuh", "lf_signed"))
	require.Equal(t, unsigned[:], read("dynamic.cuh", "lf_unsigned"))
	for _, f := range kernels.PackedForms {
		if f.Bits == 4 && !f.Zeros {
			require.Equal(t, f.Table, read("packed.cu", "lf_"+f.Name), f.Name)
		}
	}
}
