package source

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false,
	"compile the image again (nvcc "+Compiler+" on the path or in LFACTOR_NVCC)")

// TestImage: the image that lies here was made of the source that lies here. Where the compiler is found,
// it makes the same bytes, and no kernel spills registers.
func TestImage(t *testing.T) {
	compiler, why := FindCompiler()
	if *rewrite {
		require.Empty(t, why)
		image, said, err := Compile(compiler)
		require.NoError(t, err)
		noSpills(t, said)
		require.NoError(t, os.WriteFile("kernels.fatbin", image, 0o644))
		require.NoError(t, os.WriteFile("kernels.sum", []byte(Sum()), 0o644))
	}
	sum, err := os.ReadFile("kernels.sum")
	require.NoError(t, err)
	require.Equal(t, Sum(), string(sum),
		"the image is of other sources: go test ./kernels/cuda/source -run TestImage -rewrite")
	if *rewrite {
		return
	}
	if why != "" {
		t.Logf("not compiled again: %s; the hash of the source was compared", why)
		return
	}
	want, said, err := Compile(compiler)
	require.NoError(t, err)
	noSpills(t, said)
	have, err := os.ReadFile("kernels.fatbin")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, have),
		"nvcc makes %d other bytes of this source than the %d that lie here", len(want), len(have))
}

// noSpills holds that no kernel keeps registers in memory, by what the assembler says.
func noSpills(t *testing.T, said []byte) {
	all := regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`).FindAllSubmatch(said, -1)
	require.Greater(t, len(all), 200)
	for _, m := range all {
		require.Equal(t, "0 0", string(m[1])+" "+string(m[2]), "%s", said)
	}
}

// TestTensorCores: in the image, attention and products on 16 bits multiply by tensor cores, read
// fragments by ldmatrix and fetch asynchronously, for every device that there is code for. Without
// cuobjdump beside the compiler it is skipped.
func TestTensorCores(t *testing.T) {
	compiler, why := FindCompiler()
	if why != "" {
		t.Skipf("skipped: no cuobjdump: %s", why)
	}
	dump := filepath.Join(filepath.Dir(compiler), "cuobjdump")
	if _, err := os.Stat(dump); err != nil {
		t.Skipf("skipped: %v", err)
	}
	c := exec.Command(dump, "-sass", "kernels.fatbin")
	c.Env = append(os.Environ(),
		"PATH="+filepath.Dir(compiler)+string(os.PathListSeparator)+os.Getenv("PATH"))
	text, err := c.Output()
	require.NoError(t, err)
	kernels := regexp.MustCompile(`(?m)^\s*Function : `).Split(string(text), -1)[1:]
	name := regexp.MustCompile(`^(attention_(tc|dq_tc|dkv_tc|dk_tc|dv_tc)_\d+(_masked)?|product|product_rows|product_terms)_b?f16\s`)
	hopper := regexp.MustCompile(`^product_wg(_dx|_dw|_rows|_rows_dx|_terms)?_b?f16\s`)
	found, wide := 0, 0
	for _, k := range kernels {
		if hopper.MatchString(k) && strings.Contains(k, "HGMMA.64x256x16.F32") {
			wide++
		}
		if !name.MatchString(k) {
			continue
		}
		found++
		for _, wants := range []string{"HMMA.16816.F32", "LDSM.16", "LDGSTS.E.BYPASS.128"} {
			require.Contains(t, k, wants, strings.Fields(k)[0])
		}
	}
	require.Equal(t, 2*2*(20+3), found, "kernels by tensor cores: two dtypes, two architectures")
	require.Equal(t, 2*6, wide, "kernels by Hopper's tensor cores: two dtypes, of one architecture")
}

// counts is the one atomic addition that there may be: of 1 to a whole number, which has no order to keep.
const counts = "LF_DEV void add_one(u32* p) {\n#ifdef __CUDA_ARCH__\n  atomicAdd(p, 1u);\n"

// TestNoFloatAtomics: sums have an order, so no kernel adds floating-point numbers atomically, and
// nothing asks for the number of multiprocessors.
func TestNoFloatAtomics(t *testing.T) {
	refused := regexp.MustCompile(`atomic\w*\s*\(|%nsmid|#include\s*<`)
	for name, text := range All() {
		require.Empty(t, refused.FindAllString(strings.Replace(string(text), counts, "", 1), -1), name)
		require.Less(t, strings.Count(string(text), "\n"), 500, name)
	}
}
