package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

func of(d tensor.DType, shape ...int) *tensor.Tensor { return tensor.Make(d, shape...) }

func TestCheckNamesTheFault(t *testing.T) {
	f, b := tensor.F32, tensor.BF16
	for _, c := range []struct {
		why     string
		op      Op
		in, out []*tensor.Tensor
		attr    Attr
		fault   string // "" for a good call
	}{
		{"any leading dimensions", Linear, list(of(f, 2, 3, 4), of(f, 5, 4)), list(of(f, 6, 5)), Attr{}, ""},
		{"optional bias", Linear, list(of(b, 3, 4), of(b, 5, 4), of(b, 5)), list(of(b, 3, 5)), Attr{}, ""},
		{"wide output", Linear, list(of(b, 3, 4), of(b, 5, 4), nil), list(of(f, 3, 5)), Attr{}, ""},
		{"mixed activations", Linear, list(of(b, 3, 4), of(f, 5, 4)), list(of(b, 3, 5)), Attr{},
			"operand w is f32"},
		{"inner dimension", Linear, list(of(f, 3, 4), of(f, 5, 3)), list(of(f, 3, 5)), Attr{},
			"dimension k is 4"},
		{"rows", Linear, list(of(f, 3, 4), of(f, 5, 4)), list(of(f, 2, 5)), Attr{},
			"2 rows, other operands have 3"},
		{"missing", Linear, list(of(f, 3, 4)), list(of(f, 2, 5)), Attr{}, "operand w is absent"},
		{"too many", Fill, list(of(f, 1)), list(of(f, 1)), Attr{}, "1 operands, the contract has 0"},
		{"variadic", Sum, list(of(f, 2), of(f, 2), of(f, 2)), list(of(f, 2)), Attr{}, ""},
		{"variadic dtype", Sum, list(of(f, 2), of(f, 2), of(b, 2)), list(of(f, 2)), Attr{},
			"operand x0 is bf16"},
		{"slice", Slice, list(of(f, 2, 5)), list(of(f, 2, 2)), Attr{I: [4]int{1, 3}}, ""},
		{"slice past the end", Slice, list(of(f, 2, 5)), list(of(f, 2, 2)), Attr{I: [4]int{1, 4}},
			"does not fit"},
		{"concat", Concat, list(of(f, 2, 5), of(f, 1, 5)), list(of(f, 3, 5)), Attr{}, ""},
		{"concat short", Concat, list(of(f, 2, 5)), list(of(f, 3, 5)), Attr{},
			"1 operands fill 2 of axis 0"},
		{"cast of integers", Cast, list(of(tensor.I32, 2)), list(of(f, 2)), Attr{}, "no conversion of i32"},
		{"rope sign", Rope, list(of(f, 1, 1, 4), of(f, 1, 2), of(f, 1, 2)), list(of(f, 1, 1, 4)), Attr{},
			"I[0] is 0"},
		{"rope pairs", Rope, list(of(f, 1, 1, 4), of(f, 1, 3), of(f, 1, 3)), list(of(f, 1, 1, 4)), Attr{},
			"3 pairs"},
		{"unknown", "nonsense", nil, nil, Attr{}, `no operation "nonsense"`},
	} {
		err := Check(&Call{Op: c.op, In: c.in, Out: c.out, Attr: c.attr})
		if c.fault == "" {
			require.NoError(t, err, c.why)
		} else {
			require.ErrorContains(t, err, c.fault, c.why)
		}
	}
}

func list(t ...*tensor.Tensor) []*tensor.Tensor { return t }

func TestCheckOfSequenceOffsets(t *testing.T) {
	call := func(cu ...int32) *Call {
		q := of(tensor.F32, 4, 2, 3)
		off := tensor.Of(tensor.I32, cu, len(cu))
		return &Call{Op: Attention, In: list(q, q, q, off, off), Out: list(q, of(tensor.F32, 4, 2))}
	}
	require.NoError(t, Check(call(0, 3, 4)))
	require.NoError(t, Check(call(0, 3)))
	require.ErrorContains(t, Check(call(0, 3, 2)), "cu_q[2] is 2 after 3")
	require.ErrorContains(t, Check(call(0, 5)), "cu_q[1] is 5 after 0 with 4 rows")
}

func TestCheckOfMasks(t *testing.T) {
	i32 := func(shape ...int) *tensor.Tensor { return of(tensor.I32, shape...) }
	call := func(tile int, scale float64, mask ...*tensor.Tensor) error {
		q, cu := of(tensor.F32, 70, 2, 3), tensor.Of(tensor.I32, []int32{0, 70}, 2)
		return Check(&Call{Op: Attention, In: append(list(q, q, q, cu, cu), mask...),
			Out: list(q, of(tensor.F32, 70, 2)), Attr: Attr{I: [4]int{0, 0, tile}, F: [2]float64{scale}}})
	}
	require.NoError(t, call(2, 1, i32(35, 2)))
	require.NoError(t, call(0, 1, nil, i32(70, 3), i32(70, 3), i32(6)))
	require.NoError(t, call(0, -1), "any scale without a mask")
	require.ErrorContains(t, call(2, 1), "want both or none")
	require.ErrorContains(t, call(0, 1, i32(35, 2)), "want both or none")
	require.ErrorContains(t, call(2, 1, i32(35, 1)), "blocks is i32[35 1], want [35 2]")
	require.ErrorContains(t, call(3, 1, i32(35, 2)), "want [24 1]")
	require.ErrorContains(t, call(2, 0, i32(35, 2)), "a mask wants it over 0")
	require.ErrorContains(t, call(0, 1, nil, i32(70, 3)), "want all or none")
	require.ErrorContains(t, call(0, 1, nil, i32(70, 3), i32(69, 3), i32(6)), "operand pos_k is i32[69 3]")
}

// A view between elements is a bug of the caller: vectors would be torn, and other processors trap.
func TestCheckRefusesMisalignedViews(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		raw := tensor.Make(tensor.U8, 256).Bytes()
		for off := range d.Size() {
			x := tensor.Of(tensor.U8, raw[off:off+24*d.Size()], 24*d.Size())
			x.DType, x.Shape = d, []int{6, 4}
			good := &Call{Op: Linear, In: list(x, of(d, 5, 4)), Out: list(of(d, 6, 5))}
			into := &Call{Op: Linear, In: list(of(d, 6, 3), of(d, 4, 3)), Out: list(x)}
			if off == 0 {
				require.NoError(t, Check(good))
				require.NoError(t, Check(into))
				continue
			}
			require.ErrorContains(t, Check(good),
				fmt.Sprintf("operand x is %v[6 4] at an address that is not a multiple of %d bytes", d,
					d.Size()))
			require.ErrorContains(t, Check(into), fmt.Sprintf("operand y is %v[6 4] at an address", d))
		}
		require.PanicsWithValue(t, fmt.Sprintf("tensor: view of %v[4 4], %d bytes, as %v[2 4] at byte 1", d,
			16*d.Size(), d), func() { of(d, 4, 4).View(1, d, 2, 4) })
		require.Panics(t, func() { of(d, 4, 4).View(12*d.Size(), d, 2, 4) }, "past the end")
	}
}

// Signatures are parsed at first use; a spelling mistake in a contract must not wait for a user.
func TestSignaturesParse(t *testing.T) {
	require.Len(t, signatures(), len(Specs()))
	require.LessOrEqual(t, len(Specs()), 166, "few operations: is there none that says the same?")
	for _, s := range Specs() {
		require.NotEmpty(t, s.Doc, s.Op)
		require.NotEmpty(t, signatures()[s.Op].out, s.Op)
	}
}
