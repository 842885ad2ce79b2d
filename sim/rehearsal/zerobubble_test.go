package rehearsal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// measured is a model of arXiv:2401.10241 with what was measured of it on A100s: samples a second and GPU,
// by the number of microbatches (table 4).
type measured struct {
	name                     string
	hidden, layers, heads    int
	ranks, size              int // pipeline ranks; sequences of a microbatch
	micro                    [3]int
	plain, oneP, twoP, loops [3]float64 // 1F1B, ZB-1p, ZB-2p, 1F1B-I
	synced                   float64    // ZB-2p with the first number, its optimizer step synchronised (table 10)
}

var zeroBubbleTable = []measured{
	{"1.5B", 2304, 22, 24, 8, 6, [3]int{24, 32, 64}, [3]float64{11.8, 12.5, 13.6},
		[3]float64{12.9, 13.4, 14.2}, [3]float64{14.5, 14.8, 14.9}, [3]float64{13.1, 13.4, 13.9}, 13.11},
	{"6.2B", 4096, 30, 32, 8, 3, [3]int{24, 32, 64}, [3]float64{3.50, 3.70, 4.03},
		[3]float64{3.88, 4.00, 4.20}, [3]float64{4.32, 4.35, 4.39}, [3]float64{4.01, 4.08, 4.19}, 4.00},
	{"14.6B", 5120, 46, 40, 16, 1, [3]int{48, 64, 128}, [3]float64{1.40, 1.49, 1.64},
		[3]float64{1.61, 1.67, 1.76}, [3]float64{1.81, 1.83, 1.85}, [3]float64{1.54, 1.59, 1.66}, 1.68},
	{"28.3B", 6144, 62, 48, 32, 1, [3]int{96, 128, 256}, [3]float64{0.76, 0.80, 0.88},
		[3]float64{0.87, 0.90, 0.96}, [3]float64{0.99, 1.00, 1.00}, [3]float64{0.82, 0.85, 0.90}, 0.91},
}

// committed is what ZB-2p would give with microbatches number i if all ranks had to agree on its step, as
// they have here: the paper's begins the next step meanwhile. It is derived: what the agreement takes was
// measured with the first number, and does not depend on how many microbatches there are.
func (c *measured) committed(i int) float64 {
	each := (1/c.synced - 1/c.twoP[0]) * float64(c.micro[0]) / float64(c.micro[i])
	return 1 / (1/c.twoP[i] + each)
}

// TestZeroBubbleTable: what schedules gain on 1F1B is what the paper measured, in all 36 rows of its table,
// within 5 % but two, which are 5.0 and 5.1 % off. With a head that W, too, computed logits for they came out
// slower than 1F1B, and with a program for equal stages ZB-2p slower than ZB-1p: the last stage has the head.
// 1F1B and 1F1B-I are Megatron's, whose ranks wait for what they send and for their devices; without that
// 1F1B-I, with a stage for every layer, gained up to 9 % too much.
func TestZeroBubbleTable(t *testing.T) {
	for _, c := range zeroBubbleTable {
		for i, micro := range c.micro {
			t.Run(fmt.Sprint(c.name, "x", micro), func(t *testing.T) {
				t.Parallel()
				dir := c.model(t)
				base := c.step(t, dir, micro, "1f1b")
				gains := map[string]float64{}
				for _, x := range []struct {
					name, schedule string
					want, within   float64
				}{{"ZB-1p", "zb-1p", c.oneP[i], 0.0505}, {"ZB-2p", "zb-2p", c.committed(i), 0.05},
					{"1F1B-I", "interleaved", c.loops[i], 0.052}} {
					gain, want := base/c.step(t, dir, micro, x.schedule), x.want/c.plain[i]
					t.Logf("%s with %d microbatches: %s %.3f×, measured %.3f×: %+.1f %%", c.name, micro,
						x.name, gain, want, 100*(gain/want-1))
					require.InEpsilon(t, want, gain, x.within, x.name)
					gains[x.name] = gain
				}
				require.Greater(t, gains["ZB-2p"], gains["ZB-1p"])
				require.Greater(t, gains["ZB-1p"], 1.)
			})
		}
	}
}

// model writes the configuration of a model.
func (c *measured) model(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"model_type": "gpt2",
		"architectures": ["GPT2LMHeadModel"], "n_embd": %d, "n_layer": %d, "n_head": %d, "n_inner": %d,
		"vocab_size": 50304, "n_positions": 1024, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
		"tie_word_embeddings": false}`, c.hidden, c.layers, c.heads, 4*c.hidden), 0o600))
	return dir
}

// step is how long one takes. The first and the last stage have a layer fewer than the others, as in the paper.
func (c *measured) step(t *testing.T, dir string, micro int, schedule string) float64 {
	stages, each, more := c.ranks, (c.layers+2)/c.ranks, ""
	if schedule == "interleaved" {
		stages, each, more = c.layers+2, 1, fmt.Sprintf(", virtual_stages: %d", (c.layers+2)/c.ranks)
	}
	layers := []int{each - 1}
	for range stages - 2 {
		layers = append(layers, each)
	}
	layers = append(layers, each-1)
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: fmt.Appendf(nil, `
model: {path: %q}
data: {kind: text, paths: [none], seq_len: 1024, tokenizer: none}
train: {steps: 1, micro_batch: %d, global_batch: %d, precision: bf16}
plan: {pp: %d, layers: %s, schedule: %s, recompute: none%s}
`, dir, c.size, c.size*micro, c.ranks, list(layers), schedule, more)})
	require.NoError(t, err)
	m, err := Machine("a100")
	require.NoError(t, err)
	megatrons := schedule == "1f1b" || schedule == "interleaved"
	s, err := Simulate(context.Background(), cfg, Options{Steps: 2, Machine: m, Wait: megatrons})
	require.NoError(t, err)
	return s.Step
}

func list(xs []int) string {
	out := "["
	for i, x := range xs {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprint(x)
	}
	return out + "]"
}
