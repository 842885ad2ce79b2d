package source

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false,
	"compile the image again (nvcc "+Compiler+" on the path or in LFACTOR_NVCC)")

// TestImage: the image that lies here was made of the source that lies here. Where the compiler is found,
// it makes the same bytes.
func TestImage(t *testing.T) {
	compiler, why := FindCompiler()
	if *rewrite {
		require.Empty(t, why)
		image, err := Compile(compiler)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("kernels.fatbin", image, 0o644))
		require.NoError(t, os.WriteFile("kernels.sum", []byte(Sum()), 0o644))
	}
	sum, err := os.ReadFile("kernels.sum")
	require.NoError(t, err)
	require.Equal(t, Sum(), string(sum),
		"the image is of other sources: go test ./kernels/cuda/source -run TestImage -rewrite")
	if why != "" {
		t.Logf("not compiled again: %s; the hash of the source was compared", why)
		return
	}
	want, err := Compile(compiler)
	require.NoError(t, err)
	have, err := os.ReadFile("kernels.fatbin")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, have),
		"nvcc makes %d other bytes of this source than the %d that lie here", len(want), len(have))
}

// TestNoFloatAtomics: sums have an order, so no kernel adds floating-point numbers atomically, and
// nothing asks for the number of multiprocessors.
func TestNoFloatAtomics(t *testing.T) {
	refused := regexp.MustCompile(`atomic\w*\s*\(|%nsmid|#include\s*<`)
	for name, text := range All() {
		require.Empty(t, refused.FindAllString(string(text), -1), name)
		require.Less(t, strings.Count(string(text), "\n"), 500, name)
	}
}
