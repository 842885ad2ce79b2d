package host

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// trainedFamilies are the golden models whose adapters are trained beside PEFT.
var trainedFamilies = []string{"llama3.1", "qwen2-tied", "qwen3", "gemma2", "gpt2", "phi3", "olmo2", "mistral"}

const trainedSteps = 4

// drawLora draws what the section lora may say of a model.
func drawLora(r *rand.Rand, m *family.Model) *block.Lora {
	linear := []string{"*.q_proj", "*.k_proj", "*.v_proj", "*.o_proj", "*.mlp.*_proj", "model.layers.1.*proj"}
	pick := func(from []string, most int) (out []string) {
		for _, i := range r.Perm(len(from))[:1+r.IntN(most)] {
			out = append(out, from[i])
		}
		return out
	}
	l := &block.Lora{Targets: pick(linear, 4), Rank: 1 + r.IntN(4), Alpha: float64(1 + r.IntN(12)), Root: r.IntN(4) == 0, DoRA: r.IntN(3) == 0}
	for _, to := range []*[]block.Patterned{&l.Ranks, &l.Alphas} {
		if r.IntN(3) == 0 {
			for _, p := range pick(append([]string{"model.layers.0.*", "*.[kv]_proj"}, linear...), 2) {
				*to = append(*to, block.Patterned{Pattern: p, Value: float64(1 + r.IntN(6))})
			}
		}
	}
	if r.IntN(3) == 0 {
		l.Saved = pick([]string{"embed_tokens", "lm_head", "*norm", "model.layers.0.mlp.down_proj"}, 2)
	}
	if r.IntN(3) == 0 {
		l.Tokens = r.Perm(29)[:1+r.IntN(6)]
	}
	return l
}

// trainedCase opens a golden model with adapters, and writes PEFT's folder of them; why is the reason if they are refused.
func trainedCase(t *testing.T, name string, draw func(*family.Model) *block.Lora, dir string) (c *peftCase, why string) {
	conf, err := configs.ReadModel(filepath.Join(goldenDir, name))
	require.NoError(t, err)
	m, err := family.Build(conf, peftRows)
	require.NoError(t, err)
	c = &peftCase{m: m, lora: draw(m)}
	all, err := m.PEFT(c.lora)
	if err == nil {
		_, _, _, err = m.Saved(c.lora, "")
	}
	switch {
	case err != nil:
		return c, err.Error()
	case len(all) == 0:
		return c, "nothing matches"
	case c.lora.DoRA && all[0].Turned: // as fit has it
		return c, "lora.dora: turned matrices"
	}
	c.fused = slices.ContainsFunc(all, func(a family.Adapter) bool { return len(a.Parts) > 1 || a.Parts[0].Out < a.Out })
	f, err := checkpoint.OpenFile(filepath.Join(goldenDir, name, "model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	c.w, err = m.OpenWeights(f, dir)
	require.NoError(t, err)
	c.write(t, all, dir)
	return c, ""
}

// TestPEFTTrained: adapters of DoRA, rsLoRA, ranks and alphas by patterns, modules that are trained whole and trainable tokens have PEFT's losses over four
// steps of AdamW from the same start (bench/golden/peft_loss.py --trained), on one rank and on tp 2 · pp 2. Those of a fixed seed are compared
// with losses that lie here; with -long, 320 drawn ones with those of Python with PEFT, named by LFACTOR_PYTHON or python3.
func TestPEFTTrained(t *testing.T) {
	count, dir := 24, t.TempDir()
	golden := "testdata/peft_trained.json"
	if *long {
		count, golden = 320, filepath.Join(dir, "losses.json")
	}
	r := rand.New(rand.NewPCG(57, 1))
	cases, counts := map[string]*peftCase{}, map[string]int{}
	for i := 0; len(cases) < count; i++ {
		name := fmt.Sprintf("%s/%03d", trainedFamilies[i%len(trainedFamilies)], i)
		c, why := trainedCase(t, filepath.Dir(name), func(m *family.Model) *block.Lora { return drawLora(r, m) }, filepath.Join(dir, name))
		if why != "" {
			kind, _, _ := strings.Cut(why, ":")
			counts["refused: "+kind]++
			continue
		}
		cases[name] = c
		for form, on := range map[string]bool{"dora": c.lora.DoRA, "rslora": c.lora.Root, "ranks": c.lora.Ranks != nil, "alphas": c.lora.Alphas != nil,
			"modules_to_save": c.lora.Saved != nil, "trainable_tokens": c.lora.Tokens != nil, "fused, the first loss alone": c.fused, filepath.Dir(name): true} {
			if on {
				counts[form]++
			}
		}
	}
	for _, form := range []string{"dora", "rslora", "ranks", "alphas", "modules_to_save", "trainable_tokens"} {
		require.Positive(t, counts[form], "no drawn section has "+form)
	}
	if *long || *writeAdapters != "" {
		trainsByPEFT(t, dir, golden)
	}
	var want map[string][]float64
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, count)
	meshes := []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 1, 2)}
	if *long {
		meshes = meshes[:1]
	}
	for _, name := range checkpoint.SortedKeys(cases) {
		for _, mesh := range meshes {
			got := cases[name].losses(t, trainedSteps, mesh)
			require.Len(t, got, len(want[name])/2, name)
			for i, x := range want[name][:len(got)] { // in float32, and as far off as PEFT's are themselves from float64
				if i > 0 && cases[name].fused { // PEFT trains one factor for all parts of a layer, a run one for each
					break
				}
				if math.Abs(got[i]-x) > 2e-5*x+4*math.Abs(want[name][len(got)+i]-x) {
					t.Errorf("%s on %v: losses %v, and PEFT's %v: %+v", name, mesh, got, want[name], cases[name].lora)
					break
				}
			}
		}
	}
	cases["gemma2/011"].dtype = tensor.BF16 // with DoRA
	require.True(t, cases["gemma2/011"].lora.DoRA)
	require.InEpsilonSlice(t, want["gemma2/011"][:trainedSteps], cases["gemma2/011"].losses(t, trainedSteps, meshes[0]), 0.03)
	for _, form := range checkpoint.SortedKeys(counts) {
		t.Logf("%d %s", counts[form], form)
	}
}

// loadedByPEFT are the losses of adapters on the plain models, as Python with PEFT has them.
func loadedByPEFT(t *testing.T, dir string) (losses map[string]float64) {
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	run := exec.Command(python, "bench/golden/peft_begin.py", "--load", dir)
	run.Dir = "../.."
	out, err := run.Output()
	if err != nil {
		t.Skipf("%s does not load them (%v): with transformers and peft it would", python, err)
	}
	require.NoError(t, json.Unmarshal(out, &losses))
	return losses
}

// trainsByPEFT has Python train the adapters of dir, and puts the losses into a file.
func trainsByPEFT(t *testing.T, dir, golden string) {
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, peft").Run(); err != nil {
		t.Skipf("%s cannot import transformers and peft (%v): no training is compared", python, err)
	}
	run := exec.Command(python, "bench/golden/peft_loss.py", "--trained", dir)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	if at := filepath.Join(dir, "losses.json"); at != golden {
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(golden, text, 0o600))
	}
}
