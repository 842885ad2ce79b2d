package trained

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
	_ "github.com/lfactor/lfactor/stages/family/all"
)

var long = flag.Bool("long", false, "draw adapters, and hold what is merged to PEFT")

// TestAdaptersMerged: a base with an adapter added has the logits that PEFT gives the two
// (bench/golden/peft_drawn.py --golden): patterns match whole names, the head and the table of a tied model part where
// the adapter is of one of them, tokens, biases and a table that grew come out, and what PEFT adds to a base that it
// changed is refused. A tied model with a head of its own in its files has that head, as transformers has it.
func TestAdaptersMerged(t *testing.T) {
	const dir = "testdata/adapters"
	refused := map[string]string{"pissa": "init_lora_weights", "olora": "init_lora_weights"}
	wants, err := filepath.Glob(filepath.Join(dir, "*", "want.json"))
	require.NoError(t, err)
	require.Len(t, wants, 17)
	for _, want := range wants {
		name := filepath.Base(filepath.Dir(want))
		err := mergedAsPEFT(t, filepath.Dir(want))
		if why := refused[name]; why != "" {
			require.ErrorContains(t, err, why, name)
			require.ErrorContains(t, err, "path_initial_model_for_weight_conversion", name)
			continue
		}
		require.NoError(t, err, name)
	}
}

// TestAdaptersDrawn: 320 adapters drawn over eight models (bench/golden/peft_drawn.py) are merged to logits that PEFT
// gives, or refused with a reason. It wants Python with PEFT and transformers, named by LFACTOR_PYTHON or python3;
// LFACTOR_DRAWN is the count and the seed. With -v each refusal is told.
func TestAdaptersDrawn(t *testing.T) {
	if !*long {
		t.Skip("320 adapters are held to PEFT with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, peft").Run(); err != nil {
		t.Skipf("%s cannot import transformers and peft (%v): no adapter is compared", python, err)
	}
	dir := t.TempDir()
	run := exec.Command(python, append([]string{"bench/golden/peft_drawn.py", dir}, strings.Fields(os.Getenv("LFACTOR_DRAWN"))...)...)
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(strings.TrimSpace(string(out)))
	compareAdapters(t, dir)
}

func compareAdapters(t *testing.T, dir string) {
	wants, err := filepath.Glob(filepath.Join(dir, "*", "want.json"))
	require.NoError(t, err)
	counts := map[string]int{}
	for _, want := range wants {
		err := mergedAsPEFT(t, filepath.Dir(want))
		if err == nil {
			counts["equal"]++
			continue
		}
		_, why, _ := strings.Cut(err.Error(), "adapter configuration: ")
		if counts["refused"]++; why == "" {
			why = err.Error()
		}
		t.Logf("%s: %s", filepath.Base(filepath.Dir(want)), why)
		counts[strings.SplitN(why, ":", 2)[0]]++
	}
	for _, name := range checkpoint.SortedKeys(counts) {
		t.Logf("%d %s", counts[name], name)
	}
	require.Greater(t, counts["equal"], len(wants)/2)
}

// mergedAsPEFT merges an adapter, or takes a model that is whole, and fails the test where the logits are not PEFT's;
// the error is why it is refused.
func mergedAsPEFT(t *testing.T, dir string) error {
	var want struct {
		Base   string
		Logits []float32
		Note   []string
	}
	text, err := os.ReadFile(filepath.Join(dir, "want.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	dst := filepath.Join(t.TempDir(), "merged")
	if want.Base == "" {
		dst = dir
	} else if err := Merge(dir, filepath.Join(filepath.Dir(dir), want.Base), dst, Form{}); err != nil {
		return err
	}
	src, err := checkpoint.OpenDir(dst)
	require.NoError(t, err)
	m, err := OpenSource(dst, src)
	require.NoError(t, err, dir)
	defer m.Close()
	got, err := m.Probe()
	require.NoError(t, err)
	require.Len(t, got, len(want.Logits), dir)
	for i, x := range want.Logits {
		size := max(1, slices.Max(want.Logits), -slices.Min(want.Logits))
		if d := x - got[i]; !(d < 1e-4*size && -d < 1e-4*size) {
			text, _ := os.ReadFile(filepath.Join(dir, checkpoint.AdapterConfigName))
			t.Errorf("%s: logit %d is %g, and PEFT's %g (of at most %g): %v\n%s", filepath.Base(dir), i, got[i], x, size, want.Note,
				strings.Join(strings.Fields(string(text)), " "))
			break
		}
	}
	return nil
}

// TestInFull: a model whose class keeps the corrections of its router in float32 keeps them so in a bfloat16 copy.
func TestInFull(t *testing.T) {
	const dir = "../family/testdata/deepseek-v3"
	dst := filepath.Join(t.TempDir(), "half")
	require.NoError(t, Whole(dir))
	require.NoError(t, Rewrite(dir, "", dst, Form{DType: "bf16"}))
	src, err := checkpoint.OpenDir(dst)
	require.NoError(t, err)
	defer src.Close()
	full := 0
	for _, x := range src.Tensors() {
		want := checkpoint.BF16
		if strings.Contains(x.Name, "e_score_correction_bias") || strings.HasSuffix(x.Name, "gate.weight") {
			want = checkpoint.F32
			full++
		}
		require.Equal(t, want, x.DType, x.Name)
	}
	require.NotZero(t, full)
	require.Equal(t, []string{"norm"}, InFull("../family/testdata/gpt-oss", "f16"))
	require.Empty(t, InFull("../family/testdata/gpt-oss", "bf16"))
}
