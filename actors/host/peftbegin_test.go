package host

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology"
)

// begun are the layers of bench/golden/peft_begin.py.
var begun = map[string][]string{"llama3.1": {"*.q_proj", "*.v_proj"}, "qwen2-tied": {"*.k_proj", "*.down_proj"}, "qwen3": {"*.o_proj", "*.up_proj"},
	"gemma2": {"*.q_proj", "*.gate_proj"}, "olmo2": {"*.v_proj", "*.o_proj"}, "mistral": {"*.q_proj", "*.down_proj"}}

// beginCase is a golden model with adapters that begin with a part of its weights.
func beginCase(t *testing.T, name, form string) (*peftCase, []family.Adapter) {
	init, more, _ := strings.Cut(form, " ")
	l := &block.Lora{Targets: begun[name], Rank: 2, Alpha: 6, Init: init, Root: more == "rslora"}
	if more == "ranks" {
		l.Ranks, l.Alphas = []block.Patterned{{Pattern: "*.layers.0.*", Value: 3}}, []block.Patterned{{Pattern: "*.layers.1.*", Value: 5}}
	}
	c, why := trainedCase(t, name, func(*family.Model) *block.Lora { return l }, t.TempDir())
	require.Empty(t, why)
	all, err := c.m.PEFT(l)
	require.NoError(t, err)
	return c, all
}

// TestPEFTBegins: adapters that begin as PiSSA's and OLoRA's have PEFT's first A and B but for signs, and its losses over five steps of AdamW from
// there (bench/golden/peft_begin.py), on one rank and cut in two by tensors and in two by stages.
func TestPEFTBegins(t *testing.T) {
	var want map[string]struct {
		Losses []float64
		First  map[string][]float64
	}
	text, err := os.ReadFile("testdata/peft_begin.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, 4*len(begun))
	for _, key := range checkpoint.SortedKeys(want) {
		name, form, _ := strings.Cut(key, "/")
		c, _ := beginCase(t, name, form)
		for param, first := range want[key].First {
			have := c.first(t, param, len(first))
			for i, x := range first {
				require.InDelta(t, x, math.Abs(float64(have[i])), 2e-6*(1+100*x), "%s %s[%d]", key, param, i)
			}
		}
		for _, mesh := range []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 1, 2)} {
			for i, x := range c.losses(t, 5, mesh) {
				w := want[key].Losses
				require.InDelta(t, w[i], x, 2e-5*w[i]+4*math.Abs(w[5+i]-w[i]), "%s on %v: step %d", key, mesh, i)
			}
		}
		if form == "pissa" { // rounds enough find the same, whatever is drawn
			c, _ = beginCase(t, name, "pissa_niter_99")
			for i, x := range c.losses(t, 5, topology.Grid(1, 1, 1)) {
				require.InDelta(t, want[key].Losses[i], x, 2e-3*x, "%s: step %d", key, i)
			}
		}
	}
}

// first is a parameter as it begins.
func (c *peftCase) first(t *testing.T, param string, n int) []float32 {
	for _, p := range c.m.Params(c.lora) {
		if p.Name == param {
			dst := make([]float32, n)
			_, err := family.FillAdapters(c.m, c.lora, c.fill)("param", p, family.Region{To: p.Shape[0]}, dst)
			require.NoError(t, err)
			return dst
		}
	}
	require.Fail(t, "no parameter "+param)
	return nil
}

// Adapters that have learnt are written as LoRA of twice the rank that adds what they have learnt to the plain weights. With -adapters they are
// written for PEFT, whose losses of them are those of the run (bench/golden/peft_begin.py --load); with -long it is asked.
func TestPEFTBeginsConverted(t *testing.T) {
	dir, losses := t.TempDir(), map[string]float64{}
	if *writeAdapters != "" {
		dir = *writeAdapters
	}
	for name := range begun {
		for _, form := range []string{"pissa", "olora", "pissa rslora", "olora ranks", "gaussian"} {
			c, all := beginCase(t, name, form)
			fill := family.FillAdapters(c.m, c.lora, c.fill)
			learnt := func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
				ok, err := fill(kind, p, g, dst)
				for i := range dst {
					if strings.Contains(p.Name, ".lora_") && c.lora.Starts() {
						dst[i] += float32(math.Sin(float64(i))) / 8
					}
				}
				return ok, err
			}
			form = strings.ReplaceAll(form, " ", "-")
			to := trained.AdapterForm{Model: c.m, Lora: c.lora, Prefix: checkpoint.AdapterPrefix, Create: checkpoint.NewAdapterWriter}
			conf := family.AdapterConfig(all, c.lora)
			require.NoError(t, trained.WriteAdapters(filepath.Join(dir, name, form), to, all, conf, func(name string, shape []int, dst []float32) error {
				_, err := learnt("param", &grad.Param{Name: name, Shape: shape}, family.Region{To: shape[0]}, dst)
				return err
			}))
			if c.lora.Starts() {
				require.Equal(t, 4, conf.R, "PEFT loads a rank twice as large")
				require.Equal(t, len(conf.Ranks) > 0, strings.Contains(form, "ranks"))
			}
			plain, at := *c.lora, fmt.Sprint(name, "/", form)
			c.with = learnt
			losses[at] = c.loss(t)
			plain.Targets = []string{"none"}
			c.with, c.lora = nil, &plain
			require.NotEqual(t, losses[at], c.loss(t), at)
		}
	}
	if *long || *writeAdapters != "" {
		for at, x := range loadedByPEFT(t, dir) {
			require.InDelta(t, losses[at], x, 2e-5*x, at)
			delete(losses, at)
		}
		require.Empty(t, losses)
	}
}
