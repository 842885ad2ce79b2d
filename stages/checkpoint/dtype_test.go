package checkpoint

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func f32(v ...float32) (out []byte) {
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

func TestNonFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	nan, infs := NonFinite(F32, f32(1, float32(math.NaN()), -inf, inf, 0))
	require.Equal(t, [2]int{1, 2}, [2]int{nan, infs})
	for dtype, c := range map[DType]struct {
		data      []byte
		nan, infs int
	}{
		BF16:   {[]byte{0x80, 0x7f, 0xc0, 0x7f, 0x80, 0xff, 0x7f, 0x7f}, 1, 2}, // inf, nan, -inf, largest
		F16:    {[]byte{0x00, 0x7c, 0x01, 0x7c, 0xff, 0x7b}, 1, 1},             // inf, nan, 65504
		F8E5M2: {[]byte{0x7c, 0x7d, 0xfc, 0x7b}, 1, 2},                         // inf, nan, -inf, 57344
		F8E4M3: {[]byte{0x7f, 0xff, 0x7e, 0x78}, 2, 0},                         // nan, -nan, 448, 256
		F64:    {binary.LittleEndian.AppendUint64(nil, math.Float64bits(math.NaN())), 1, 0},
		I32:    {[]byte{0xff, 0xff, 0xff, 0xff}, 0, 0},
	} {
		nan, infs := NonFinite(dtype, c.data)
		require.Equal(t, [2]int{c.nan, c.infs}, [2]int{nan, infs}, dtype)
	}
}

// TestSmallFloats checks values that torch gives: torch.tensor([bits]).view(dtype).
func TestSmallFloats(t *testing.T) {
	for dtype, c := range map[DType]map[uint16]float64{
		F16: {0x3c00: 1, 0xc500: -5, 0x0001: 5.9604644775390625e-08, 0x7bff: 65504,
			0x0400: 6.103515625e-05},
		F8E4M3: {0x38: 1, 0x7e: 448, 0x01: 0.001953125, 0xb8: -1, 0x08: 0.015625},
		F8E5M2: {0x3c: 1, 0x7b: 57344, 0x01: 1.52587890625e-05, 0xbc: -1},
		BF16:   {0x3f80: 1, 0xc2c8: -100, 0x4049: 3.140625},
	} {
		_, decode := FloatDecoder(dtype)
		for bits, want := range c {
			require.Equal(t, want, decode([]byte{byte(bits), byte(bits >> 8)}), "%s %#x", dtype, bits)
		}
	}
}

func TestByteSize(t *testing.T) {
	n, err := ByteSize(BF16, []int{3, 5})
	require.NoError(t, err)
	require.Equal(t, int64(30), n)
	n, err = ByteSize(F32, nil)
	require.NoError(t, err)
	require.Equal(t, int64(4), n, "a scalar has one element")
	n, err = ByteSize(F32, []int{1 << 40, 0, 1 << 40})
	require.NoError(t, err)
	require.Zero(t, n, "an axis of no extent leaves nothing to count")
	_, err = ByteSize(F32, []int{1 << 31, 1 << 31})
	require.Error(t, err)
}
