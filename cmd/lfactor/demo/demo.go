// Package demo is the verb of that name: it parses, calls and prints.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor demo: training shown on this machine.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "demo",
		Short: "Train a small language model on this machine's Go sources, as actors, in about a minute",
		Args:  cobra.NoArgs}
	dir := c.Flags().String("dir", "lfactor-demo", "where to work; a finished demo there is started afresh")
	steps := c.Flags().Int("steps", 0,
		"training steps; 0 takes 600, 60 with --cluster, and 250 of each model with --moe")
	vlm := c.Flags().Bool("vlm", false,
		"train a vision-language model on drawn images instead, its encoder on an actor of its own")
	cluster := c.Flags().Bool("cluster", false, "train on a cluster of four agents instead, of which one "+
		"is killed, and then the head; with --rl in four processes, three of which draw answers and are killed")
	moe := c.Flags().Bool("moe", false,
		"train a mixture of experts, shared out over actors, beside a dense model instead")
	long := c.Flags().Bool("long", false,
		"train a hybrid of linear and full attention to find a needle in 8,192 tokens, beside a model "+
			"of windows, "+
			"instead")
	image := c.Flags().Bool("image", false,
		"train a model of diffusion that draws pictures of captions instead, with "+
			"an encoder of captions that learns with it")
	robot := c.Flags().Bool("robot", false,
		"train a policy of a robot on recordings of a drawn world instead, and have it act there")
	rl := c.Flags().Bool("rl", false,
		"teach a small model addition instead: a little by texts, and the rest by "+
			"rewards of answers that it draws")
	video := c.Flags().Bool("video", false,
		"train a model of diffusion that draws clips of captions instead, in which a "+
			"shape goes where it is told")
	c.MarkFlagsMutuallyExclusive("vlm", "cluster", "moe", "long", "image", "robot", "video")
	c.MarkFlagsMutuallyExclusive("vlm", "rl", "moe", "long", "image", "robot", "video")
	usual, both := true, false
	demos := []struct {
		is    *bool
		steps int
		run   func(ctx context.Context, dir string, steps int, show *shown) error
	}{{&both, rlClusterSteps, demoRLCluster}, {cluster, clusterSteps, demoCluster}, {moe, moeSteps, demoMoE},
		{long, longSteps, demoLong},
		{image, imageSteps, demoImage}, {robot, robotSteps, demoRobot}, {rl, rlSteps, demoRL}, {video,
			videoSteps, demoVideo},
		{vlm, demoSteps, demoVLM}, {&usual, demoSteps, demo}}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *steps < 0 {
			return exit.Usagef("demo: --steps is not negative")
		}
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		show := &shown{out: c.OutOrStdout()}
		if form != "text" {
			show.out = os.Stderr
		}
		both = *rl && *cluster
		for _, d := range demos {
			if !*d.is {
				continue
			}
			if *steps == 0 {
				*steps = d.steps
			}
			if err := d.run(c.Context(), *dir, *steps, show); err != nil {
				return err
			}
			break
		}
		return cli.Emit(c, show.result, func(io.Writer) {})
	}
	return c
}

// demoSteps are enough for both demos to show what they claim; with fewer they say so and are no failure.
const demoSteps = 600

// shown is what a demo shows: text while it goes, and a result for programs.
type shown struct {
	out    io.Writer
	result map[string]any
}

// files names what a demo leaves behind.
func files(dir string) map[string]string {
	return map[string]string{"curve": filepath.Join(dir, "run", "loss.svg"),
		"metrics": filepath.Join(dir, "run", "metrics.jsonl"),
		"trace":   filepath.Join(dir, "run", "trace.json"),
		"export":  filepath.Join(dir, "checkpoints", "release_hf_weights")}
}

// demoConfig is a run file like any other.
const demoConfig = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 192, num_hidden_layers: 4, num_attention_heads: 6, num_key_value_heads: 2, head_dim: 32, intermediate_size: 512, vocab_size: %d, max_position_embeddings: 512, rope_scaling: none, initializer_range: 0.03}
data: {kind: text, paths: [%q], valid: [%q], tokenizer: %q, seq_len: 128}
train: {steps: %d, global_batch: 8, micro_batch: 2, eval_interval: %d, eval_steps: 16, log_interval: %d, seed: 7}
optimizer: {lr: 3.0e-3, min_lr: 1.0e-4, beta2: 0.98, weight_decay: 0.05}
schedule: {kind: cosine, warmup_steps: 40}
plan: {pp: 2, dp: 2, zero: 1, threads: 1}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

const demoVocab = 1024

// demo trains a byte-level BPE language model on the Go standard library's sources and shows it learning.
func demo(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in, err := prepare(dir, began)
	if err != nil {
		return err
	}
	every := max(1, steps/4)
	text := fmt.Sprintf(demoConfig, demoVocab, in("text"), in("valid"), in("tokenizer"), steps, steps,
		max(1, steps/20), in("checkpoints"), every, in("run"))
	cfg, err := configs.Load(configs.Request{File: "demo", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	d := &demoWatch{dir: in("checkpoints"), out: show.out}
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr, Report: d.see}); err != nil {
		return err
	}
	return d.verdict(cfg, began, dir, show)
}

// prepare makes a demo's corpus and tokenizer afresh, and gives the paths of what lies in its directory.
func prepare(dir string, began time.Time) (in func(name string) string, err error) {
	for _, sub := range []string{"checkpoints", "run", "dense", "text", "valid", "tokenizer"} {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil {
			return nil, err
		}
	}
	c, err := demoCorpus()
	if err != nil {
		return nil, err
	}
	in = func(name string) string { return filepath.Join(dir, name) }
	if err := c.write(dir); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr,
		"corpus  %d files of %s, %d held out; %d-token byte-level BPE trained on "+
			"them in %v\n",
		len(c.train), c.of, len(c.valid), demoVocab, time.Since(began).Round(100*time.Millisecond))
	return in, nil
}

// demoWatch shows what the model has learnt at each checkpoint, and remembers its loss on held-out files.
type demoWatch struct {
	dir  string
	loss float64
	out  io.Writer
}

func (d *demoWatch) see(m actors.Message) {
	switch m.Text {
	case core.TopicEval:
		d.loss = core.EvalLoss(m.Values)
	case core.TopicDurable:
		if err := d.show(m.Step); err != nil {
			fmt.Fprintln(os.Stderr, "! sampling:", err)
		}
	}
}

func (d *demoWatch) show(step int64) error {
	var b strings.Builder
	if err := trained.Continuation(d.dir, "func (r *Reader) Read(p []byte) (n int, err error) {\n",
		sample.Params{Max: 48, Temperature: 0.7, TopP: 0.9, Seed: uint64(step)}, &b); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "── after step %d, the model continues:\n%s\n", step,
		strings.TrimRight(indent(b.String()), " \n"))
	return nil
}

func indent(s string) string { return "   " + strings.ReplaceAll(s, "\n", "\n   ") }

// verdict compares with a bigram model of the same tokens on the same held-out windows.
func (d *demoWatch) verdict(cfg *configs.Config, began time.Time, dir string, show *shown) error {
	r, err := run.Open(cfg)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Rewind(); err != nil {
		return err
	}
	bigram, tokens, err := bigramLoss(&cfg.Run, r)
	if err != nil {
		return err
	}
	left := files(dir)
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "loss": d.loss, "bigram_loss": bigram,
		"tokens": tokens, "seconds": time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(d.out, "held-out loss: %.3f nats a token; a bigram model of the same %d tokens: %.3f\n",
		d.loss, tokens, bigram)
	fmt.Fprintf(d.out, "curve %s · metrics %s · trace %s · Hugging Face export %s\n", left["curve"],
		left["metrics"], left["trace"], left["export"])
	fmt.Fprintf(d.out, "done in %v\n", time.Since(began).Round(time.Second))
	if d.loss < bigram {
		return nil
	}
	if cfg.Run.Train.Steps < demoSteps {
		fmt.Fprintf(d.out, "after %d steps the model does not beat the bigram model yet; %d steps are "+
			"enough\n", cfg.Run.Train.Steps, demoSteps)
		return nil
	}
	return fmt.Errorf("the model did not beat the bigram model")
}

// bigramLoss counts pairs in the training batches and scores the held-out ones, with the pair's relative
// frequency mixed with the token's own and a uniform rest; the mixing weights are the best of a grid on the
// held-out batches themselves, in the bigram model's favour.
func bigramLoss(c *configs.Run, r *run.Run) (loss float64, tokens int, err error) {
	pair, single, from := map[[2]int32]float64{}, map[int32]float64{}, map[int32]float64{}
	each := func(step int64, f func(a, b int32)) error {
		for dp := range c.Plan.DP {
			mbs, err := r.Batches(step, dp)
			if err != nil {
				return err
			}
			for _, mb := range mbs {
				for i, t := range mb.Targets {
					if t >= 0 {
						f(mb.IDs[i], t)
					}
				}
			}
		}
		return nil
	}
	for s := int64(1); s <= int64(c.Train.Steps); s++ {
		if err := each(s, func(a,
			b int32) {
			pair[[2]int32{a, b}]++
			single[b]++
			from[a]++
			tokens++
		}); err != nil {
			return 0, 0, err
		}
	}
	best := math.Inf(1)
	for _, l2 := range []float64{0.5, 0.6, 0.7, 0.8, 0.9} {
		for _, l0 := range []float64{0.001, 0.01, 0.03} {
			sum, n := 0.0, 0
			for s := int64(-1); s >= -int64(c.Train.EvalSteps); s-- {
				err := each(s, func(a, b int32) {
					p := l0/float64(r.Tokenizer().VocabSize()) + (1-l0)*(1-l2)*single[b]/float64(tokens)
					if from[a] > 0 {
						p += (1 - l0) * l2 * pair[[2]int32{a, b}] / from[a]
					}
					sum, n = sum-math.Log(p), n+1
				})
				if err != nil {
					return 0, 0, err
				}
			}
			best = min(best, sum/float64(n))
		}
	}
	return best, tokens, nil
}

// corpus is what a demo of a language model reads.
type corpus struct {
	of           string   // as "the Go standard library"
	train, valid []string // names of files; every twentieth is held out
	read         func(name string) ([]byte, error)
}

// demoCorpus is the standard library's sources, and where there are none, as where lfactor was installed
// without Go, sources that
// the demo writes itself.
func demoCorpus() (*corpus, error) {
	c := &corpus{of: "the Go standard library", read: os.ReadFile}
	all, err := goFiles(filepath.Join(goRoot(), "src"))
	if err != nil {
		return nil, err
	}
	if len(all) < 100 {
		c.of, all = "Go that the demo has written, as there is no Go here", nil
		c.read = func(name string) ([]byte, error) {
			n, err := strconv.Atoi(name)
			return []byte(written(n)), err
		}
		for n := range writtenFiles {
			all = append(all, strconv.Itoa(n))
		}
	}
	for i, p := range all {
		if i%20 == 7 {
			c.valid = append(c.valid, p)
		} else {
			c.train = append(c.train, p)
		}
	}
	return c, nil
}

// goFiles are sources below a folder in the order of their names, none where there is no such folder.
func goFiles(dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case path == dir && err != nil:
			return fs.SkipDir
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || e.Name() == "cmd" || e.Name() == "vendor"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
			!strings.Contains(filepath.Base(path), "tables") && !strings.HasPrefix(filepath.Base(path), "z"):
			if info, err := e.Info(); err == nil && info.Size() < 200<<10 {
				all = append(all, path)
			}
		}
		return nil
	})
	slices.Sort(all)
	return all, err
}

// goRoot is the Go installation whose sources the demo reads: the environment's, or that of the go command
// on the path.
func goRoot() string {
	if root := os.Getenv("GOROOT"); root != "" && machine.Exists(filepath.Join(root, "src", "fmt")) {
		return root
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "no Go installation"
	}
	return strings.TrimSpace(string(out))
}

// write puts texts, held-out texts and a tokenizer trained on the former into folders of dir.
func (c *corpus) write(dir string) error {
	text := filepath.Join(dir, "text")
	if err := errors.Join(c.gather(text, c.train), c.gather(filepath.Join(dir, "valid"), c.valid)); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(text, "*.txt"))
	if err != nil {
		return err
	}
	return TrainTokenizer(filepath.Join(dir, "tokenizer"), files, demoVocab)
}

// gather copies sources into one folder under flat names, so that the data is files like anybody's.
func (c *corpus) gather(dir string, files []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, p := range files {
		text, err := c.read(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.txt", i)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// GoSources copies the first n training files of the standard library to dir.
func GoSources(dir string, n int) (int, error) {
	c, err := demoCorpus()
	if err != nil {
		return 0, err
	}
	n = min(n, len(c.train))
	return n, c.gather(dir, c.train[:n])
}

// TrainTokenizer trains a byte-level BPE tokenizer of vocab tokens on about 4 MB of the files.
func TrainTokenizer(dir string, files []string, vocab int) error {
	texts := iter.Seq[string](func(yield func(string) bool) {
		size := 0
		for i := 0; i < len(files) && size < 4<<20; i += 3 {
			b, err := os.ReadFile(files[i])
			if err != nil {
				continue // it was listed a moment ago; one file less does no harm
			}
			size += len(b)
			if !yield(string(b)) {
				return
			}
		}
	})
	text, err := token.Train(token.TrainConfig{VocabSize: vocab, Special: []string{"<|endoftext|>"}}, texts)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
		[]byte("{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": \"<|endoftext|>\"}\n"),
		0o644)
}
