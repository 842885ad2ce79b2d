//go:build cuda

package cuda

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
)

const (
	first  = "GPU-e0e1e2e3-e4e5-e6e7-e8e9-eaebecedee00"
	second = "GPU-e0e1e2e3-e4e5-e6e7-e8e9-eaebecedee01"
)

// managed is the emulated driver as the environment names it, with libraries left out but NVML's stand-in.
func managed(t *testing.T) *emulate.Driver {
	e := emulate.New(t)
	t.Setenv(LibraryVariable, e.Path)
	t.Setenv(ManagerVariable, e.Path)
	for _, v := range []string{ProductsVariable, AttentionVariable, ExchangeVariable} {
		t.Setenv(v, "none")
	}
	return e
}

// TestDeviceByUUID: a device is named by its UUID, and one that is not there is refused with those that are.
func TestDeviceByUUID(t *testing.T) {
	e := managed(t)
	open := func(which string) (string, error) {
		b, err := kernels.Open("cuda:"+which, kernels.Options{})
		if err != nil {
			return "", err
		}
		defer kernels.Close(b)
		return b.Name(), nil
	}
	for _, name := range []string{second, "GPU-" + strings.ToUpper(second[4:]), "1"} {
		got, err := open(name)
		require.NoError(t, err)
		require.Equal(t, "cuda:1 (emulated device)", got)
	}
	_, err := open("GPU-e0e1")
	require.EqualError(t, err, "there is no device cuda:GPU-e0e1; the driver has "+first+" (cuda:0), "+second+
		" (cuda:1) (CUDA_VISIBLE_DEVICES hides others)")
	_, err = open("MIG-" + second[4:])
	require.ErrorContains(t, err, "a MIG slice is seen where it is named there", "of a whole GPU")
	_, err = open("x")
	require.EqualError(t, err, "device cuda:x: want a number or a UUID, as in cuda:1 and cuda:GPU-…")
	e.Set(t, "mig", 1, 0)
	got, err := open("MIG-" + second[4:])
	require.NoError(t, err)
	require.Equal(t, "cuda:1 (emulated device MIG 1g.10gb)", got)
	_, err = open(second)
	require.ErrorContains(t, err, "there is no device cuda:"+second, "of a slice")
}

// TestHealth: doctor's lines tell which device it is and how it does, with warnings of their own; a run is
// told what has come up since it began, each once.
func TestHealth(t *testing.T) {
	e := managed(t)
	require.Contains(t, kernels.Describe(),
		"cuda: device cuda:0 is "+first+" at 0000:01:00.0, a whole GPU, "+
			"clock 1500 of 1980 MHz, memory's clock 2600 of 2600 MHz, ECC errors 3 corrected and 0 uncorrected")
	e.Set(t, "ecc", 2, 0)
	e.Set(t, "throttle", 0x24, 0) // a cap of power too, which is no fault
	require.Subset(t, kernels.Describe(), []string{
		"! cuda: device cuda:1 has had 2 uncorrected ECC errors since its driver was loaded: reset it " +
			"(nvidia-smi -r) or replace it",
		"! cuda: device cuda:1 has a low clock: it is too warm (the driver slows it down)"})
	e.Set(t, "mig", 1, 0)
	require.Contains(t, strings.Join(kernels.Describe(), "\n"),
		"cuda:0 is MIG-"+first[4:]+" at 0000:01:00.0, a "+
			"MIG slice, clock 1500 of 1980 MHz", "told by the GPU that it is of")
	e.Set(t, "mig", 0, 0)

	managers.byPath = nil // as a process that starts
	var ranks []kernels.Ailing
	for rank := range 2 {
		b, err := kernels.Open("cuda:0", kernels.Options{Rank: rank})
		require.NoError(t, err)
		t.Cleanup(func() { kernels.Close(b) })
		ranks = append(ranks, b.(kernels.Ailing))
	}
	require.Empty(t, ranks[0].Ails(), "what was there before is doctor's")
	e.Set(t, "ecc", 5, 0)
	e.Set(t, "xid", 48, 0)
	name := "cuda:0 (" + first + ", 0000:01:00.0)"
	require.Equal(t, []string{name + " has 3 uncorrected ECC errors more, 5 since its driver was loaded; what " +
		"it computed may be wrong", name + ": the driver reports Xid 48; docs.nvidia.com/deploy/xid-errors has " +
		"what they mean"}, ranks[1].Ails())
	require.Empty(t, ranks[0].Ails(), "said once of a device of two ranks")

	t.Setenv(ManagerVariable, "none")
	require.Contains(t, kernels.Describe(), "cuda: devices' health is not known, as LFACTOR_LIBNVML says")
	b, err := kernels.Open("cuda:0", kernels.Options{})
	require.NoError(t, err)
	defer kernels.Close(b)
	require.Empty(t, b.(kernels.Ailing).Ails())
	t.Setenv(ManagerVariable, "libm.so.6")
	_, err = kernels.Open("cuda:0", kernels.Options{})
	require.ErrorContains(t, err, "libm.so.6 has no nvml")
}
