package run

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

const preferences = "testdata/preference"

// preferenceGolden is what bench/golden/preference.py has of TRL.
type preferenceGolden struct {
	Pairs [][3]string
	Rows  struct {
		IDs       [][]int32 `json:"input_ids"`
		Mask      [][]int   `json:"completion_mask"`
		Attention [][]int   `json:"attention_mask"`
	}
	LogPs map[string][][]float64
	Cases map[string]struct {
		Loss      float64
		Gradients map[string][]float64
		Seen      map[string]float64
		Params    map[string]float64
	}
}

func readPreferences(t *testing.T) (g preferenceGolden) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(preferences, "golden.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

// paramKeys are the settings of TRL's numbers.
var paramKeys = map[string]string{"beta": "beta", "gamma": "gamma", "smoothing": "smoothing",
	"text":   "sft_weight",
	"center": "center", "desirable": "desirable", "undesirable": "undesirable"}

// rewardColumns are the columns that TRL calls otherwise for models of rewards, and rewardOnly how many columns there are
// beside TRL's: the two rewards of such models, of which it has the mean, and the loss of texts, which it leaves out of DPO's.
var (
	rewardColumns = map[string]string{"accuracy": "rewards/accuracies", "margin": "rewards/margins"}
	rewardOnly    = map[string]int{"reward": 2, "dpo+sft": 1}
)

// everyLogit are the losses of TRL's CPO and ORPO trainers, whose means of logits take prompts and padding too.
var everyLogit = map[string]bool{"simpo": true, "cpo": true, "orpo": true}

// TestPreferenceGolden: a run file's loss over answers, its gradients, and the columns of its metrics are TRL's. One step
// of plain descent with rate 1 moves every weight by its gradient.
func TestPreferenceGolden(t *testing.T) {
	t.Parallel()
	g := readPreferences(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "pairs.jsonl")
	var lines []string
	for i, p := range g.Pairs {
		b, err := json.Marshal(map[string]any{"prompt": p[0], "chosen": p[1], "rejected": p[2],
			"margin": 0.1 * float64(i)})
		require.NoError(t, err)
		lines = append(lines, string(b))
	}
	require.NoError(t, os.WriteFile(data, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	judged := filepath.Join(dir, "judged.jsonl")
	lines = nil
	for i := range 5 {
		b, err := json.Marshal(map[string]any{"prompt": g.Pairs[i/2][0], "completion": g.Pairs[i/2][1+i%2],
			"label": i%2 == 0})
		require.NoError(t, err)
		lines = append(lines, string(b))
	}
	require.NoError(t, os.WriteFile(judged, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	for name, c := range g.Cases {
		kind, _, _ := strings.Cut(name, "+")
		model := filepath.Join(preferences, "policy")
		if kind == "reward" {
			model = filepath.Join(preferences, "reward")
		}
		paths, batch := data, "3"
		if kind == "kto" {
			paths, batch = judged, "5"
		}
		out := t.TempDir()
		args := []string{"model.path=" + model, "data.paths=" + paths, "data.seq_len=40", "objective.kind=" +
			kind,
			"train.steps=1", "train.global_batch=" + batch, "train.micro_batch=" + batch,
			"data.packing=false",
			"optimizer.kind=sgd", "optimizer.lr=1",
			"optimizer.momentum=0", "optimizer.weight_decay=0", "optimizer.clip_grad=0",
			"schedule.warmup_steps=0",
			"schedule.kind=constant", "log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" +
				filepath.Join(out, "saved"),
			"checkpoint.save_hf=true"}
		for k, v := range c.Params {
			args = append(args, "objective."+paramKeys[k]+"="+strconv.FormatFloat(v, 'g', -1, 64))
		}
		if strings.HasPrefix(kind, "dpo") || kind == "ipo" || kind == "kto" {
			args = append(args, "objective.reference="+filepath.Join(preferences, "reference"))
		}
		cfg, err := configs.Load(configs.Request{Args: args})
		require.NoError(t, err, name)
		var line Metrics
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) { line = m }}), name)
		require.InDelta(t, c.Loss, line.Loss, 1e-5, name)
		seenAsTRL(t, name, c.Seen, line.Figures)
		before, after := weightsOf(t, model), weightsOf(t, filepath.Join(out, "saved", "release_hf_weights"))
		for param, want := range c.Gradients {
			got := make([]float64, len(want))
			for i := range got {
				got[i] = float64(before[param][i]) - float64(after[param][i])
			}
			require.InDeltaSlice(t, want, got, 1e-5, "%s: %s", name, param)
		}
	}
}

// seenAsTRL holds the columns of a step to what TRL has logged of it.
func seenAsTRL(t *testing.T, name string, want map[string]float64, got Figures) {
	t.Helper()
	seen := 0
	for column, x := range want {
		if own := rewardColumns[column]; own != "" {
			column = own
		}
		if y, has := got[column]; has {
			seen++
			if strings.HasPrefix(column, "logits/") && everyLogit[strings.Split(name, "+")[0]] {
				continue
			}
			require.InDelta(t, x, y, 1e-5, "%s: %s", name, column)
		}
	}
	require.Len(t, got, seen+rewardOnly[name], "%s: %v", name, got)
	require.Greater(t, seen, 1, name)
}

// weightsOf reads the tensors of a Hugging Face directory.
func weightsOf(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	defer src.Close() //nolint:errcheck // it is only read
	out := map[string][]float32{}
	for _, info := range src.Tensors() {
		ranges := make([][2]int, len(info.Shape))
		for i, n := range info.Shape {
			ranges[i] = [2]int{0, n}
		}
		raw := make([]byte, 4*tensor.Len(info.Shape))
		require.NoError(t, src.ReadRanges(info.Name, ranges, raw))
		out[info.Name] = make([]float32, tensor.Len(info.Shape))
		tensor.Widen(tensor.F32, raw, out[info.Name])
	}
	return out
}

// TestPreferenceTokens: pairs of texts have TRL's tokens, their answers begin where TRL's do, and the
// model's log-probabilities of them are transformers'.
func TestPreferenceTokens(t *testing.T) {
	t.Parallel()
	g := readPreferences(t)
	dir := filepath.Join(preferences, "policy")
	tok, _, err := token.LoadDir(dir)
	require.NoError(t, err)
	e := &format.PairEncoder{Text: tok, EOS: 1, SeqLen: 64}
	sides := make([][][]int32, 2)
	for i, p := range g.Pairs {
		b, err := json.Marshal(map[string]any{"prompt": p[0], "chosen": p[1], "rejected": p[2]})
		require.NoError(t, err)
		both, err := e.EncodeSample(&dataset.Document{Parts: []dataset.Part{{Name: "json", Bytes: b}}})
		require.NoError(t, err)
		for side, s := range both {
			row := side*len(g.Pairs) + i // all chosen answers, then all rejected ones
			n := len(s.Tokens)
			require.Equal(t, g.Rows.IDs[row][:n], s.Tokens)
			for k := range g.Rows.IDs[row] {
				require.Equal(t, k < n && s.Loss[k], g.Rows.Mask[row][k] == 1, "row %d, token %d", row, k)
			}
			sides[side] = append(sides[side], s.Tokens)
		}
	}
	m, err := trained.Open(dir, "")
	require.NoError(t, err)
	defer m.Close()
	ref := &trained.Reference{Open: func() (*sample.Generator, error) {
		b, err := kernels.Open(kernels.CPU, kernels.Options{})
		if err != nil {
			return nil, err
		}
		return m.Generator(b, tensor.F32)
	}}
	defer ref.Close()
	got, err := ref.LogProbs(append(sides[0], sides[1]...))
	require.NoError(t, err)
	for row, v := range got {
		for k, x := range v {
			require.InDelta(t, g.LogPs["policy"][row][k], x, 1e-5)
		}
	}
}
