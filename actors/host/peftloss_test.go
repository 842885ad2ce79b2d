package host

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology"
)

var writeAdapters = flag.String("adapters", "",
	"directory to write the adapters of TestPEFTLosses to, for bench/golden/peft_loss.py")

// peftFamilies are golden models that transformers has by itself, one or two a family.
var peftFamilies = []string{"cohere2", "deepseek-v2", "deepseek-v3", "ernie4.5", "ernie4.5-moe", "exaone4",
	"gemma2", "gemma3", "glm", "glm4", "glm4-moe", "gpt-oss", "gpt2", "granite", "llama3.1", "minimax-m2",
	"mistral", "mixtral", "olmo2", "phi3", "qwen2", "qwen2-moe", "qwen2-tied", "qwen3", "qwen3-moe",
	"qwen3-next", "qwen3.5", "smollm3", "starcoder2"}

// peftTargets are the layers that get additions.
var peftTargets = map[string][]string{"attention": {"*.self_attn.*_proj", "*.linear_attn.*proj*"},
	"mlp": {"*.mlp.*_proj"}, "all": {"*proj*"}, "glob": {"model.layers.1.*.[kd]*_proj"},
	"experts": {"*.experts.*"}}

const (
	peftRows = 24
	peftRate = 1e-2
)

// peftCase is a model with additions.
type peftCase struct {
	m     *family.Model
	w     *family.Weights
	lora  *block.Lora
	dtype tensor.DType    // that it computes in; float32 where it is not said
	fused bool            // of transformers' layers some are several of ours
	with  family.FillFunc // in place of what they begin with
}

// fill gives the golden weights, and random additions.
func (c *peftCase) fill(kind string, p *grad.Param, r family.Region, dst []float32) (bool, error) {
	if kind != "param" || !strings.Contains(p.Name, ".lora_") {
		if kind != "param" {
			return false, nil
		}
		return c.w.Read(p, r, dst)
	}
	c.m.Init(11, &grad.Param{Name: p.Name + ".random", Shape: p.Shape}, r, dst)
	for i := range dst { // large enough to be seen in a loss
		dst[i] *= 10
	}
	return true, nil
}

// write makes PEFT's directory of the additions.
func (c *peftCase) write(t *testing.T, all []family.Adapter, dir string) {
	form := trained.AdapterForm{Model: c.m, Lora: c.lora, Prefix: checkpoint.AdapterPrefix, Create: checkpoint.NewAdapterWriter}
	require.NoError(t, trained.WriteAdapters(dir, form, all, family.AdapterConfig(all, c.lora), func(name string, shape []int, dst []float32) error {
		_, err := family.FillAdapters(c.m, c.lora, c.fill)("param", &grad.Param{Name: name, Shape: shape}, family.Region{To: shape[0]}, dst)
		return err
	}))
}

// filled fills a run of the case.
func (c *peftCase) filled() family.FillFunc {
	if c.with != nil {
		return c.with
	}
	return family.FillAdapters(c.m, c.lora, c.fill)
}

// loss is that of one sequence.
func (c *peftCase) loss(t *testing.T) float64 { return c.losses(t, 1, topology.Grid(1, 1, 1))[0] }

// losses are those of some steps on one sequence, whose ids bench/golden/peft_loss.py counts in the same way.
func (c *peftCase) losses(t *testing.T, steps int64, mesh topology.Mesh) (losses []float64) {
	mb := family.Microbatch{Cu: []int32{0, peftRows}}
	for i := range int32(peftRows) {
		next := (7*(i+1) + 3) % 29
		if i == peftRows-1 {
			next = -100
		}
		mb.IDs, mb.Targets = append(mb.IDs, (7*i+3)%29), append(mb.Targets, next)
		mb.Positions, mb.Weights = append(mb.Positions, i), append(mb.Weights, 1.0/(peftRows-1))
	}
	mb.Weights[peftRows-1] = 0
	l, err := layout.New(&layout.Design{Model: c.m, Lora: c.lora, Mesh: mesh, DType: c.dtype,
		Schedule: "1f1b", Micro: 1, Rows: peftRows, Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8},
		Frozen: func(name string) bool { return !strings.Contains(name, ".lora_") && !c.lora.Saves(name) }})
	require.NoError(t, err)
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: steps,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return peftRate }},
		Backend: func(int) kernels.Backend { return cpu.New(1) }, Fill: c.filled(),
		Batches: func(int64, int) ([]family.Microbatch, error) { return []family.Microbatch{mb}, nil },
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses = append(losses, core.SummaryOf(m.Values).Loss)
			}
		}}))
	return losses
}

// TestPEFTLosses: with additions to attention, MLPs, everything, layers by a pattern and experts, every family
// either has the loss of PEFT with the adapters that are written of them (bench/golden/peft_loss.py), or they
// are refused with a reason, because PEFT would load others.
func TestPEFTLosses(t *testing.T) {
	text, err := os.ReadFile("testdata/peft_loss.json")
	want := map[string]float64{}
	if *writeAdapters == "" {
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &want))
	}
	refused, equal := 0, 0
	for _, name := range peftFamilies {
		dir := filepath.Join(goldenDir, name)
		conf, err := configs.ReadModel(dir)
		require.NoError(t, err)
		for targets, patterns := range peftTargets {
			m, err := family.Build(conf, peftRows)
			require.NoError(t, err)
			m.DropMTP()
			c := &peftCase{m: m, lora: &block.Lora{Targets: patterns, Rank: 2, Alpha: 6}}
			if len(m.Adapters(c.lora)) == 0 {
				continue
			}
			at := name + "/" + targets
			all, err := m.PEFT(c.lora)
			if err != nil {
				require.ErrorContains(t, err, "lora.merge=true", at)
				require.NotContains(t, want, at)
				refused++
				continue
			}
			f, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
			require.NoError(t, err)
			c.w, err = m.OpenWeights(f, dir)
			require.NoError(t, err)
			if *writeAdapters != "" {
				c.write(t, all, filepath.Join(*writeAdapters, name, targets))
			} else {
				require.Contains(t, want, at, "no loss of PEFT's: run bench/golden/peft_loss.py")
				require.InEpsilon(t, want[at], c.loss(t), 1e-5, at)
				equal++
			}
			require.NoError(t, f.Close())
		}
	}
	if *writeAdapters == "" {
		require.Len(t, want, equal)
		t.Logf("%d losses are PEFT's, %d sets of targets are refused", equal, refused)
		require.Greater(t, refused, 5)
	}
}
