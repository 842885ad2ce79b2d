package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/optim"
)

// averaged trains a small model that keeps an average of its weights, in the folder out, and returns its
// directory of checkpoints.
func averaged(t *testing.T, dir, out string, more ...string) string {
	t.Helper()
	text := fmt.Sprintf(`
model: {file: %q}
data: {paths: [%q], valid: [%q], seq_len: 16}
diffusion: {autoencoder: pixels, sizes: [8x8], text_encoder: none}
train: {steps: 5, global_batch: 4, micro_batch: 2, eval_steps: 2}
optimizer: {lr: 1.0e-2, ema: 0.3, ema_after: 1}
checkpoint: {keep: 9}
schedule: {decay_steps: 5}
`, filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), filepath.Join(dir, "a.tar"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
		"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved")}, more...)})
	require.NoError(t, err)
	require.NoError(t, Train(context.Background(), cfg, Options{}))
	return filepath.Join(out, "saved")
}

// values reads all tensors of a kind of a step, in float32; where there is no such tensor it takes the parameter.
func values(t *testing.T, dir string, step int, kinds ...string) map[string][]float32 {
	t.Helper()
	r, err := checkpoint.Open(filepath.Join(dir, fmt.Sprintf("step-%08d", step)))
	require.NoError(t, err)
	defer r.Close()
	out := map[string][]float32{}
	for _, kind := range kinds {
		for _, x := range r.Kind(kind).Tensors() {
			d, err := tensor.ParseDType(map[checkpoint.DType]string{"F32": "f32", "BF16": "bf16"}[x.DType])
			require.NoError(t, err)
			raw, ranges := make([]byte, x.Bytes), make([][2]int, len(x.Shape))
			for i, n := range x.Shape {
				ranges[i] = [2]int{0, n}
			}
			require.NoError(t, r.ReadLogical(x.Name, kind, ranges, raw))
			v := make([]float32, int(x.Bytes)/d.Size())
			tensor.Widen(d, raw, v)
			out[x.Name] = v
		}
	}
	return out
}

// TestAverageOfRuns: the average that a run keeps is that of the weights of its steps, under plans that shard,
// offload and replicate state; a run that ended after each step and went on has the same bits as a whole one.
func TestAverageOfRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	rule := optim.Averaging{Decay: 0.3, After: 1}
	for _, plan := range [][]string{{}, {"plan.dp=2", "plan.zero=1", "train.precision=bf16"},
		{"plan.pp=2", "plan.zero=0", "plan.offload_optimizer=true"}, {"plan.dp=2", "plan.zero=3",
			"plan.tp=2"}} {
		out, want := t.TempDir(), map[string][]float32{}
		for step := 1; step <= 5; step++ {
			saved := averaged(t, dir, out, append(plan, fmt.Sprintf("train.steps=%d", step))...)
			for name, v := range values(t, saved, step, checkpoint.Param, checkpoint.Master) {
				if want[name] == nil {
					want[name] = make([]float32, len(v))
				}
				by := float32(1 - rule.At(int64(step)))
				for i := range v {
					want[name][i] -= float32(by * (want[name][i] - v[i]))
				}
			}
		}
		require.NotEmpty(t, want)
		require.Equal(t, want, values(t, filepath.Join(out, "saved"), 5, optim.AverageState), "%v", plan)
		whole := averaged(t, dir, t.TempDir(), plan...)
		require.Equal(t, want, values(t, whole, 5, optim.AverageState), "%v", plan)
	}
}

// TestAverageIsRead: evaluation and export take the average where they are asked to; without one that is an error.
func TestAverageIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	saved := averaged(t, dir, t.TempDir(), "checkpoint.save_hf=true", "checkpoint.save_hf_ema=true")
	text := fmt.Sprintf("model: {path: %q}\ndata: {paths: [%q], valid: [%q], seq_len: 16}\ndiffusion: "+
		"{autoencoder: pixels, sizes: [8x8], text_encoder: none}\ntrain: {global_batch: 4, eval_steps: 2}\n",
		filepath.Join(saved, "release_hf_weights", "transformer"), filepath.Join(dir, "a.tar"),
		filepath.Join(dir, "a.tar"))
	eval := func(text string, average bool, args ...string) (*Evaluation, error) {
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append(args,
			"log.dir="+t.TempDir())})
		require.NoError(t, err)
		return Evaluate(context.Background(), cfg, Question{Average: average})
	}
	want, err := eval(text, false)
	require.NoError(t, err)
	own := fmt.Sprintf("model: {file: %q}\n", filepath.Join(dir, "model.yaml")) +
		text[len(fmt.Sprintf("model: {path: %q}\n",
			filepath.Join(saved, "release_hf_weights", "transformer"))):] +
		"optimizer: {lr: 1.0e-2, ema: 0.3, ema_after: 1}\n"
	last, err := eval(own, false, "checkpoint.dir="+saved, "train.steps=5")
	require.NoError(t, err)
	got, err := eval(own, true, "checkpoint.dir="+saved, "train.steps=5")
	require.NoError(t, err)
	require.Equal(t, want.Loss, got.Loss)
	require.NotEqual(t, last.Loss, got.Loss)
	require.Contains(t, got.From, "average of weights")

	_, err = eval(text, true)
	require.ErrorContains(t, err, "there is no checkpoint of a run")
	none := averaged(t, dir, t.TempDir(), "optimizer.ema=0", "optimizer.ema_after=0")
	_, err = eval(own, true, "checkpoint.dir="+none, "train.steps=5", "optimizer.ema=0",
		"optimizer.ema_after=0")
	require.ErrorContains(t, err, "kept no average")
}

// TestLossByLevel: the loss of parts of the noise levels is that of each, whatever other parts there are.
func TestLossByLevel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	saved := averaged(t, dir, t.TempDir(), "optimizer.ema=0", "optimizer.ema_after=0")
	eval := func(levels int, more ...string) *Evaluation {
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], valid: [%[2]q], seq_len: 16}\ndiffusion: "+
			"{autoencoder: pixels, sizes: [8x8], text_encoder: none}\ntrain: {steps: 5, global_batch: 4, micro_batch: 2, eval_steps: 6}\noptimizer: {lr: 1.0e-2}\n"+
			"schedule: {decay_steps: 5}\n",
			filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append(more,
			"log.dir="+t.TempDir(), "checkpoint.dir="+saved)})
		require.NoError(t, err)
		e, err := Evaluate(context.Background(), cfg, Question{Levels: levels})
		require.NoError(t, err)
		return e
	}
	e := eval(4)
	require.Len(t, e.Levels, 4)
	for i, l := range e.Levels {
		require.Equal(t, [2]float64{float64(i) / 4, float64(i+1) / 4}, [2]float64{l.From, l.To})
		require.Positive(t, l.Loss)
	}
	require.NotEqual(t, e.Levels[0].Loss, e.Levels[3].Loss)
	one := eval(1)
	require.Equal(t, one.Loss, one.Levels[0].Loss) // all of them
	require.Equal(t, e.Loss, one.Loss)
	two := eval(2)
	require.Len(t, two.Levels, 2)
	require.NotEqual(t, e.Levels[3].Loss, two.Levels[1].Loss)
}

// TestOtherScheduler: a run of diffusion does not go on under a scheduler whose file has changed.
func TestOtherScheduler(t *testing.T) {
	t.Parallel()
	dir, out := t.TempDir(), t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	file := filepath.Join(dir, "scheduler_config.json")
	write := func(prediction string) {
		require.NoError(t, os.WriteFile(file, []byte(`{"_class_name": "DDIMScheduler", "prediction_type": "`+prediction+`"}`),
			0o644))
	}
	more := []string{"diffusion.scheduler=" + file, "optimizer.ema=0", "optimizer.ema_after=0"}
	write("epsilon")
	averaged(t, dir, out, append(more, "train.steps=2")...)
	averaged(t, dir, out, append(more, "train.steps=3")...)
	write("v_prediction")
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(fmt.Sprintf(
		"model: {file: %q}\ndata: {paths: [%q], valid: [%[2]q], seq_len: 16}\ndiffusion: {autoencoder: pixels, sizes: [8x8], "+
			"text_encoder: none, scheduler: %q}\ntrain: {steps: 5, global_batch: 4, micro_batch: 2, eval_steps: 2}\n"+
			"optimizer: {lr: 1.0e-2}\nschedule: {decay_steps: 5}\ncheckpoint: {dir: %q, keep: 9}\n",
		filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"), file, filepath.Join(out, "saved"))),
		Args: []string{"log.dir=" + t.TempDir()}})
	require.NoError(t, err)
	err = Train(context.Background(), cfg, Options{})
	require.ErrorContains(t, err, "diffusion.scheduler")
	require.ErrorContains(t, err, "prediction_type is v_prediction")
}
