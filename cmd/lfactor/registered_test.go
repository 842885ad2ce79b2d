package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/optim"
)

// schedule.kind: halving. The rate is halved every ten steps.
var _ = optim.RegisterRate(optim.Rate{Name: "halving", Source: "an example",
	After: func(l optim.LR, n float64) float64 {
		return max(l.Min, l.Max*math.Pow(0.5, n/10))
	}})

// optimizer.kind: descent. Plain gradient descent, without state and without a kernel of its own.
var _ = optim.Register(optim.Optimizer{Name: "descent", Paper: "an example",
	Hyper: func(_ optim.Config, lr float64, _ int64, h []float64) { h[kernels.HyperLR] = lr },
	Update: func(b kernels.Backend, grad, hyper, clip, p *tensor.Tensor, _ []*tensor.Tensor,
		model *tensor.Tensor, _ bool) {
		step := tensor.Make(tensor.F32, grad.Shape...)
		by := -hyper.F64()[kernels.HyperLR] * clip.F64()[kernels.ClipFactor] // 0 if gradients overflowed
		b.Run(&kernels.Call{Op: kernels.Scale, In: []*tensor.Tensor{grad}, Out: []*tensor.Tensor{step},
			Attr: kernels.Attr{F: [2]float64{by}}})
		b.Run(&kernels.Call{Op: kernels.Sum, In: []*tensor.Tensor{p, step}, Out: []*tensor.Tensor{p}})
		if model != nil { // the copy in the precision of training
			b.Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{p}, Out: []*tensor.Tensor{model}})
		}
	}})

// data.kind: shout. A document is a file of capital letters.
var _ = dataset.Register(dataset.Format{Name: "shout", Doc: "text in capital letters", Kind: dataset.KindText,
	Match: func(path string, _ []byte) bool { return strings.HasSuffix(path, ".shout") },
	Open:  func(path string, _ dataset.Options) (dataset.Source, error) { return shouted{path}, nil }})

type shouted struct{ path string }

func (s shouted) Name() string        { return s.path }
func (s shouted) Kind() dataset.Kind  { return dataset.KindText }
func (s shouted) Len() int64          { return 1 }
func (s shouted) Fingerprint() string { return s.path }
func (s shouted) Close() error        { return nil }
func (s shouted) Read(int64) (dataset.Document, error) {
	b, err := os.ReadFile(s.path)
	return dataset.Document{Text: strings.ToLower(string(b)), Place: dataset.Place{File: s.path}}, err
}

// Sizes implements dataset.Sized, so that documents are permuted as those of other formats are.
func (s shouted) Sizes(_ int64, out []int64) error {
	d, err := s.Read(0)
	out[0] = int64(len(d.Text))
	return err
}

// TestRegisteredFromOneFile trains with an optimizer, a learning-rate schedule and a data format that this file
// registers and that nothing else knows of: one at a time beside what they must agree with, then all of them.
func TestRegisteredFromOneFile(t *testing.T) {
	dir := tinyRun(t)
	t.Chdir(dir)
	for _, sub := range []string{"plain", "loud"} {
		require.NoError(t, os.Mkdir(sub, 0o755))
	}
	files, err := filepath.Glob("text/*.txt")
	require.NoError(t, err)
	for i, f := range files[:12] {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		text = text[:min(len(text), 2<<10)]   // the format reads all of a document to know its size
		loud := strings.ToUpper(string(text)) // not every letter comes back as it was
		require.NoError(t, os.WriteFile(fmt.Sprintf("plain/%03d.txt", i), []byte(strings.ToLower(loud)),
			0o644))
		require.NoError(t, os.WriteFile(fmt.Sprintf("loud/%03d.shout", i), []byte(loud), 0o644))
	}
	train := func(more ...string) (out []run.Metrics) {
		require.NoError(t, os.RemoveAll("run"))
		args := append([]string{"data.paths=[plain/*.txt]", "data.split=[100,0,0]", "optimizer.kind=sgd",
			"optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.lr=0.1",
			"schedule.kind=constant", "train.steps=4", "checkpoint.dir=''", "checkpoint.interval=0", "plan.pp=1"}, more...)
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Args: args})
		require.NoError(t, err)
		require.NoError(t, run.Train(context.Background(), cfg,
			run.Options{Step: func(m run.Metrics) { out = append(out, m) }}))
		require.Len(t, out, 4)
		return out
	}
	base := train()
	format := train("data.kind=shout", "data.paths=[loud/*.shout]")
	optimizer := train("optimizer.kind=descent")
	rate := train("schedule.kind=halving")
	require.Less(t, base[3].Loss, base[0].Loss)
	for i := range base {
		require.Equal(t, base[i].Loss, format[i].Loss, "step %d: the same text", i+1)
		require.InDelta(t, base[i].Loss, optimizer[i].Loss, 1e-5,
			"step %d: the same update, rounded elsewhere", i+1)
		require.InDelta(t, 0.1*math.Pow(0.5, float64(i)/10), rate[i].LR, 1e-12)
	}
	all := train("data.kind=shout", "data.paths=[loud/*.shout]", "optimizer.kind=descent",
		"schedule.kind=halving")
	require.InDelta(t, rate[3].Loss, all[3].Loss, 1e-5)

	_, err = configs.Load(configs.Request{File: "run.yaml", Args: []string{"schedule.kind=sawtooth"}})
	require.ErrorContains(t, err, "schedule.kind")
	require.ErrorContains(t, err, "halving", "the fault lists what is registered")
}

// TestContributingShowsTheFile: the examples of CONTRIBUTING.md are those that the test above trains with.
func TestContributingShowsTheFile(t *testing.T) {
	mine, err := os.ReadFile("registered_test.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(mine), ")\n\n// schedule.kind")
	examples, _, _ := strings.Cut("// schedule.kind"+after, "type shouted struct")
	require.Contains(t, string(doc), "```go\n"+strings.TrimSpace(examples)+"\n```")
}
