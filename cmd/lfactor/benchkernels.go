package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// kernelTime is one kernel as measured; bench/kernels.py reads it.
type kernelTime struct {
	Name    string  `json:"name"`
	DType   string  `json:"dtype"`
	Threads int     `json:"threads"`
	Seconds float64 `json:"seconds"` // the median of the rounds
	Flops   float64 `json:"flops"`   // 0 for a kernel that is bound by memory
	Bytes   float64 `json:"bytes"`
	Peak    float64 `json:"of_peak"` // share of the measured peak of its kind: products, or memory
}

// kernelCase is a kernel of the training step of bench step: batch 4, length 512, 512 wide, 8 heads of 64, 1408 inner, 32000 tokens.
type kernelCase struct {
	name         string
	flops, bytes float64
	run          func(*cpu.Backend)
}

func kernelBench() *cobra.Command {
	c := &cobra.Command{Use: "kernels", Short: "Time kernels beside the machine's measured peaks; bench/kernels.py times PyTorch's beside them", Args: cobra.NoArgs}
	threads := c.Flags().IntSlice("threads", []int{1}, "kernel threads, several by commas")
	types := c.Flags().StringSlice("precision", []string{"fp32", "bf16"}, "fp32, bf16, or both by commas")
	rounds := c.Flags().Int("rounds", 7, "rounds; the median counts")
	only := c.Flags().String("only", "", "measure only kernels whose name contains this")
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := output(c)
		if err != nil {
			return err
		}
		var out []kernelTime
		for _, n := range *threads {
			if n < 1 || *rounds < 1 {
				return usage("--threads and --rounds want numbers from 1")
			}
			b := cpu.New(n)
			p := b.Peaks()
			for _, t := range *types {
				d, ok := precisions[t]
				if !ok || d == tensor.F16 {
					b.Close()
					return usage("--precision %s: want fp32 or bf16", t)
				}
				out = append(out, timeKernels(b, p, d, *only, n, *rounds)...)
			}
			b.Close()
		}
		return printKernels(out, form)
	}
	return c
}

func peakBench() *cobra.Command {
	c := &cobra.Command{Use: "peak", Short: "Measure what this machine's instructions can do at most", Args: cobra.NoArgs}
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := output(c)
		if err != nil {
			return err
		}
		b := cpu.New(0)
		defer b.Close()
		p := b.Peaks()
		if form != "text" {
			return json.NewEncoder(os.Stdout).Encode(map[string]any{"level": b.Name(), "multiply_add_flops": p.MultiplyAdd, "bf16_flops": p.Tiles, "memory_bytes_per_second": p.Memory})
		}
		t := textTable("what", "measured")
		t.AppendRow(table.Row{"instructions", b.Name()})
		t.AppendRow(table.Row{"float32 multiply-adds in registers, one thread", fmt.Sprintf("%.1f GFLOP/s", p.MultiplyAdd/1e9)})
		if p.Tiles > 0 {
			t.AppendRow(table.Row{"bfloat16 products in registers, one thread", fmt.Sprintf("%.1f GFLOP/s", p.Tiles/1e9)})
		}
		t.AppendRow(table.Row{"memory, all threads", fmt.Sprintf("%.1f GB/s", p.Memory/1e9)})
		t.Render()
		return nil
	}
	return c
}

// timeKernels measures every case; the rounds go over all cases, so that a disturbance does not hit one alone.
func timeKernels(b *cpu.Backend, p cpu.Peaks, d tensor.DType, only string, threads, rounds int) (out []kernelTime) {
	cases := slices.DeleteFunc(kernelCases(d), func(c kernelCase) bool { return !strings.Contains(c.name, only) })
	all := make([][]float64, len(cases))
	for range rounds {
		for i, c := range cases {
			all[i] = append(all[i], timeRun(b, c.run))
		}
	}
	for i, c := range cases {
		slices.Sort(all[i])
		k := kernelTime{Name: c.name, DType: d.String(), Threads: threads, Seconds: all[i][rounds/2], Flops: c.flops, Bytes: c.bytes}
		peak := p.MultiplyAdd
		if d == tensor.BF16 && p.Tiles > 0 {
			peak = p.Tiles
		}
		if k.Peak = k.Bytes / k.Seconds / p.Memory; c.flops > 0 {
			k.Peak = c.flops / k.Seconds / (peak * float64(threads))
		}
		out = append(out, k)
	}
	return
}

// timeRun repeats a kernel for about 20 ms and gives the shortest time of one run.
func timeRun(b *cpu.Backend, run func(*cpu.Backend)) float64 {
	run(b)
	best := time.Hour
	for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
		t := time.Now()
		run(b)
		best = min(best, time.Since(t))
	}
	return best.Seconds()
}

func printKernels(out []kernelTime, form string) error {
	switch form {
	case "json":
		return json.NewEncoder(os.Stdout).Encode(out)
	case "jsonl":
		for _, k := range out {
			if err := json.NewEncoder(os.Stdout).Encode(k); err != nil {
				return err
			}
		}
		return nil
	}
	t := textTable("kernel", "dtype", "threads", "time", "GFLOP/s", "GB/s", "of peak")
	for _, k := range out {
		rate := ""
		if k.Flops > 0 {
			rate = fmt.Sprintf("%.1f", k.Flops/k.Seconds/1e9)
		}
		t.AppendRow(table.Row{k.Name, k.DType, k.Threads, seconds(k.Seconds), rate, fmt.Sprintf("%.1f", k.Bytes/k.Seconds/1e9), fmt.Sprintf("%.0f%%", 100*k.Peak)})
	}
	t.Render()
	return nil
}

// drawn is a tensor of random numbers.
func drawn(r *rand.Rand, d tensor.DType, shape ...int) *tensor.Tensor {
	t := tensor.Make(tensor.F32, shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(r.NormFloat64()) / 8
	}
	if d == tensor.F32 {
		return t
	}
	h := tensor.Make(d, shape...)
	tensor.Narrow(d, t.F32(), h.Bytes())
	return h
}

func kernelCases(d tensor.DType) (out []kernelCase) {
	const t, w, ff, v = 2048, 512, 1408, 32000
	r := rand.New(rand.NewPCG(5, 6))
	ts := func(x ...*tensor.Tensor) []*tensor.Tensor { return x }
	size := func(xs ...*tensor.Tensor) (n float64) {
		for _, x := range xs {
			n += float64(len(x.Bytes()))
		}
		return
	}
	add := func(name string, flops float64, c *kernels.Call) {
		out = append(out, kernelCase{name, flops, size(c.In...) + size(c.Out...), func(b *cpu.Backend) { b.Run(c) }})
	}
	for _, s := range [][2]int{{w, w}, {ff, w}, {w, ff}} {
		n, k := s[0], s[1]
		x, m, y := drawn(r, d, t, k), drawn(r, d, n, k), drawn(r, d, t, n)
		flops := 2 * float64(t) * float64(n) * float64(k)
		name := fmt.Sprintf(" %d×%d×%d", t, n, k)
		add("linear"+name, flops, &kernels.Call{Op: kernels.Linear, In: ts(x, m), Out: ts(y)})
		add("linear dx"+name, flops, &kernels.Call{Op: kernels.LinearDX, In: ts(y, m), Out: ts(drawn(r, d, t, k))})
		add("linear dw"+name, flops, &kernels.Call{Op: kernels.LinearDW, In: ts(y, x), Out: ts(drawn(r, tensor.F32, n, k)), Attr: kernels.Attr{I: [4]int{kernels.Accumulate}}})
	}
	for _, s := range [][2]int{{4, 512}, {1, 4096}} {
		attentionCases(r, d, s[0], s[1], add)
	}
	x, y := drawn(r, d, t, w), drawn(r, d, t, w)
	g, u, m := drawn(r, d, t, ff), drawn(r, d, t, ff), drawn(r, d, t, ff)
	add("rmsnorm", 0, &kernels.Call{Op: kernels.RMSNorm, In: ts(x, drawn(r, d, w)), Out: ts(y, drawn(r, tensor.F32, t)), Attr: kernels.Attr{F: [2]float64{1e-5}}})
	add("layernorm", 0, &kernels.Call{Op: kernels.LayerNorm, In: ts(x, drawn(r, d, w), drawn(r, d, w)), Out: ts(y, drawn(r, tensor.F32, t), drawn(r, tensor.F32, t)), Attr: kernels.Attr{F: [2]float64{1e-5}}})
	add("swiglu", 0, &kernels.Call{Op: kernels.SwiGLU, In: ts(g, u), Out: ts(m)})
	add("swiglu backward", 0, &kernels.Call{Op: kernels.SwiGLUBwd, In: ts(m, g, u), Out: ts(drawn(r, d, t, ff), drawn(r, d, t, ff))})
	add("gelu", 0, &kernels.Call{Op: kernels.Act, In: ts(g), Out: ts(m)})
	target, head := tensor.Make(tensor.I32, t), drawn(r, d, v, w)
	for i := range target.I32() {
		target.I32()[i] = int32(r.IntN(v))
	}
	lse, weight, seed := tensor.Make(tensor.F32, t, 1), drawn(r, tensor.F32, t), tensor.Of(tensor.F32, []float32{1}, 1)
	e, top := tensor.Make(d, t, v), tensor.Make(tensor.F32, t, (v+kernels.LSEBlock-1)/kernels.LSEBlock)
	flops := 2 * float64(t) * float64(w) * float64(v)
	add("cross-entropy", flops, &kernels.Call{Op: kernels.LinearLSE, In: ts(x, head, target), Out: ts(lse, tensor.Make(tensor.F32, t), e, top)})
	add("cross-entropy backward", 2*flops, &kernels.Call{Op: kernels.LinearCEBwd, In: ts(x, head, target, tensor.Of(tensor.F32, lse.F32(), t), weight, seed, e, top), Out: ts(y, drawn(r, tensor.F32, v, w))})
	rows := cpu.NewLossRows(d, target, v)
	out = append(out, kernelCase{"cross-entropy of logits", 0, rows.Bytes(), rows.Run})
	if d == tensor.F32 {
		const n = 8 << 20
		hyper, clip := tensor.Of(tensor.F64, []float64{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5}, 7), tensor.Of(tensor.F64, []float64{1, 1, 0}, 3)
		add("adamw, 8 Mi", 0, &kernels.Call{Op: kernels.AdamW, In: ts(drawn(r, d, n), hyper, clip), Out: ts(drawn(r, d, n), drawn(r, d, n), tensor.Make(d, n))})
	}
	return
}

func attentionCases(r *rand.Rand, d tensor.DType, sequences, length int, add func(string, float64, *kernels.Call)) {
	const h, e = 8, 64
	t := sequences * length
	var cu []int32
	for i := range sequences + 1 {
		cu = append(cu, int32(i*length))
	}
	c := tensor.Of(tensor.I32, cu, len(cu))
	q, k, v, o, lse := drawn(r, d, t, h, e), drawn(r, d, t, h, e), drawn(r, d, t, h, e), drawn(r, d, t, h, e), tensor.Make(tensor.F32, t, h)
	at := kernels.Attr{I: [4]int{1}, F: [2]float64{1 / math.Sqrt(e)}}
	flops := float64(sequences) * float64(length) * float64(length) / 2 * h * e * 2 * 2
	name := fmt.Sprintf(" %d×%d", sequences, length)
	add("attention"+name, flops, &kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, k, v, c, c}, Out: []*tensor.Tensor{o, lse}, Attr: at})
	add("attention backward"+name, 2.5*flops, &kernels.Call{Op: kernels.AttentionBwd, In: []*tensor.Tensor{o, q, k, v, o, lse, c, c}, Attr: at,
		Out: []*tensor.Tensor{drawn(r, d, t, h, e), drawn(r, d, t, h, e), drawn(r, d, t, h, e)}})
}
