//go:build cuda

package cuda

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// cards are the devices that the emulated driver can be, as src/driver.cc numbers them, and the shared memory that
// a block of each may have.
var cards = []struct {
	name   string
	shared int
}{{"H100", 227 << 10}, {"A100", 163 << 10}, {"RTX 4090", 99 << 10}}

// fewest is the card whose blocks may have the least shared memory.
const fewest = 2

// counted is a processor that counts the calls that a device leaves to it, and does nothing.
type counted struct {
	kernels.Backend
	calls map[kernels.Op]int
}

func (c *counted) Name() string           { return "nobody" }
func (c *counted) Run(call *kernels.Call) { c.calls[call.Op]++ }
func (c *counted) Sync()                  {}

// dry opens a card whose launches are held to what it has and are not carried out.
func dry(t *testing.T, card int64) (*accel.Device, *emulate.Driver, *counted) {
	t.Helper()
	e := emulate.New(t)
	e.Set(t, "card", card, 0)
	e.Set(t, "dry", 1, 0)
	left := &counted{calls: map[kernels.Op]int{}}
	d, _ := emulated(t, 0, accel.Absent{Open: func() (kernels.Backend, error) { return left, nil }})
	return d, e, left
}

// onProcessorOf are, by card, the cases of an operation that the processor runs in its stead, and why. Operations that
// no card has at all are not of it.
var onProcessorOf = map[kernels.Op]struct {
	cases [3]int
	why   string
}{
	kernels.Linear:        {[3]int{78, 78, 78}, "of weights in parts, whose sums have an order of their own"},
	kernels.GroupedLinear: {[3]int{36, 36, 36}, "of weights in parts"},
	kernels.LogitsNLL:     {[3]int{6, 6, 6}, "of a vocabulary in shards"},
	kernels.AttentionSparse: {[3]int{0, 3, 3}, "a block has a tile of latents of 576 and 512 in float32: 174 KB; " +
		"gradients of queries 206 KB, of keys 141"},
	kernels.AttentionSparseBwd: {[3]int{0, 3, 3}, "likewise"},
}

// notLaunched are the kernels that no case launches, and why.
var notLaunched = map[string]string{
	"widen_all_f32":  "a macro makes it with the others; float32 is copied",
	"narrow_all_f32": "likewise",
}

// TestCards: on no card is a launch of any case refused, the processor runs no more of them than is said above, and
// every kernel of the image is launched by some case on some card. Cases whose kernels are those of cards with little
// shared memory are held to the definition.
func TestCards(t *testing.T) {
	launched := map[string]int{}
	lean := map[string]bool{}
	for card, c := range cards {
		t.Run(c.name, func(t *testing.T) {
			d, e, left := dry(t, int64(card))
			require.Equal(t, c.shared, describeCard(t, e).SharedMemory)
			b := kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d))
			all, before, leans := map[kernels.Op]int{}, e.Kernels(), launchesOf(e, "_lean")
			kernelstest.Calls(func(name string, c *kernels.Call) {
				all[c.Op]++
				b.Run(c)
				if card == fewest {
					if n := launchesOf(e, "_lean"); n > leans {
						lean[name], leans = true, n
					}
				}
			})
			for _, c := range besides(t, d) {
				d.Run(c)
			}
			d.Sync()
			for name, n := range e.Kernels() {
				launched[name] += n - before[name]
			}
			for _, s := range kernels.Specs() {
				if n := left.calls[s.Op]; own(s.Op) {
					require.Equal(t, onProcessorOf[s.Op].cases[card], n, "of %d cases of %s on the processor", all[s.Op], s.Op)
				} else {
					require.Equal(t, all[s.Op], n, "cases of %s on the processor", s.Op)
				}
				if n := left.calls[s.Op]; n > 0 {
					t.Logf("%s: of %d cases %d on the processor %s", s.Op, all[s.Op], n, onProcessorOf[s.Op].why)
				}
			}
		})
	}
	var never []string
	for name, n := range launched {
		if n == 0 && notLaunched[name] == "" {
			never = append(never, name)
		}
		require.False(t, n > 0 && notLaunched[name] != "", "%s is launched", name)
	}
	slices.Sort(never)
	require.Empty(t, never, "of %d kernels %d are launched by no case:\n%s", len(launched), len(never),
		strings.Join(never, "\n"))
	t.Run("lean", func(t *testing.T) {
		require.NotEmpty(t, lean)
		e := emulate.New(t)
		e.Set(t, "card", fewest, 0)
		d, _ := emulated(t, 0, strict)
		kernelstest.Part{Plant: 5, Only: func(name string) bool { return lean[name] }, Has: ofAttention}.Run(t,
			kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d)))
	})
}

// launchesOf is how many launches there were of kernels whose names have a part.
func launchesOf(e *emulate.Driver, part string) (n int) {
	for name, k := range e.Kernels() {
		if strings.Contains(name, part) {
			n += k
		}
	}
	return n
}

// besides are calls whose kernels no case of the suite has, since its operands lie on the device: an update whose
// hyper-parameters are on the host, and a sum of squares of what is there.
func besides(t *testing.T, d *accel.Device) []*kernels.Call {
	p := tensor.NewPool("besides", 0).In(d)
	hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
	copy(hyper.F64(), []float64{0.01, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05})
	clip.F64()[kernels.ClipFactor] = 0.5
	zeros := tensor.Make(tensor.F32, 5000)
	return []*kernels.Call{
		{Op: kernels.AdamW, In: []*tensor.Tensor{place(t, d, p, numbers(5000)), hyper, clip}, Out: []*tensor.Tensor{
			place(t, d, p, numbers(5000)), place(t, d, p, zeros), place(t, d, p, zeros), nil}},
		{Op: kernels.SumSquares, In: []*tensor.Tensor{numbers(5000)},
			Out: []*tensor.Tensor{place(t, d, p, tensor.Make(tensor.F64, 1))}},
	}
}

// TestBesides holds what they give to the definition.
func TestBesides(t *testing.T) {
	d, _ := emulated(t, 0, strict)
	besidesAre(t, d)
}

func besidesAre(t *testing.T, d *accel.Device) {
	for _, c := range besides(t, d) {
		want := &kernels.Call{Op: c.Op, Attr: c.Attr}
		host := func(l []*tensor.Tensor) (out []*tensor.Tensor) {
			for _, x := range l {
				if x != nil && !x.OnHost() {
					x = kernels.Host(d, x)
				}
				out = append(out, x)
			}
			return out
		}
		want.In, want.Out = host(c.In), host(c.Out)
		ref.New().Run(want)
		d.Run(c)
		for i, x := range host(c.Out) {
			switch {
			case x == nil:
			case x.DType == tensor.F64:
				require.InEpsilonSlice(t, want.Out[i].F64(), x.F64(), 1e-12)
			default:
				require.InDeltaSlice(t, want.Out[i].F32(), x.F32(), 1e-6, "%s out %d", c.Op, i)
			}
		}
	}
}

func describeCard(t *testing.T, e *emulate.Driver) Info {
	l, err := LoadFrom(e.Path)
	require.NoError(t, err)
	i, err := l.Describe(0)
	require.NoError(t, err)
	return i
}

// TestCardRefuses: the emulated driver refuses what a card's driver does: a block with more shared memory than the
// card has for one, counting the kernel's own; one with more than 48 KB that nobody asked for; one whose threads have
// more registers than there are. Each fault is planted in a launch that is good without it.
func TestCardRefuses(t *testing.T) {
	const kernel, own = "index_dk_f32", 128 // of shared memory
	for _, x := range []struct {
		name            string
		card            int64
		raises          int64
		kernel          string
		threads, shared int
		wants           string
	}{
		{"good", fewest, 1, kernel, 128, 99<<10 - own, ""},
		{"over the card's", fewest, 1, kernel, 128, 99<<10 - own + 1, "CUDA_ERROR_INVALID_VALUE"},
		{"good elsewhere", 1, 1, kernel, 128, 99<<10 - own + 1, ""},
		{"unasked", fewest, 0, kernel, 128, 48<<10 - own, ""},
		{"unasked and over", fewest, 0, kernel, 128, 48<<10 - own + 1, "CUDA_ERROR_INVALID_VALUE"},
		{"registers", 0, 1, "attention_tc_256_bf16", 256, 0, ""},
		{"registers over", 0, 1, "attention_tc_256_bf16", 288, 0, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := emulate.New(t)
			e.Set(t, "card", x.card, 0)
			e.Set(t, "dry", 1, 0)
			e.Set(t, "raises", x.raises, 1)
			l, err := LoadFrom(e.Path)
			require.NoError(t, err)
			d, err := l.open(0)
			require.NoError(t, err)
			defer d.Close()
			var f function
			require.NoError(t, d.do(func() (err error) { f, err = d.function(x.kernel); return err }))
			err = d.launch(x.kernel, grid{x: 1, threads: x.threads, shared: x.shared}, make([]uint64, f.words))
			if x.wants == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("cuLaunchKernel %s: %s", x.kernel, x.wants))
			}
		})
	}
}
