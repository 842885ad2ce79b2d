package demo

import (
	"errors"
	"fmt"
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

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

const demoVocab = 1024

// text trains a byte-level BPE language model on the Go standard library's sources and shows it learning: it says what
// the model writes at each checkpoint, and compares its loss on held-out files with that of a bigram model.
func (s *session) text() error {
	if err := s.prepare(); err != nil {
		return err
	}
	loss := 0.0
	cfg, err := s.train("text.yaml", values{"at": "", "log": max(1, s.steps/20), "keep": max(1, s.steps/4),
		"export": true}, run.Options{Report: func(m actors.Message) {
		switch m.Text {
		case core.TopicEval:
			loss = core.EvalLoss(m.Values)
		case core.TopicDurable:
			if err := s.continued(m.Step); err != nil {
				s.tell("! sampling: %v\n", err)
			}
		}
	}})
	if err != nil {
		return err
	}
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
	left := s.left()
	s.end(map[string]any{"loss": loss, "bigram_loss": bigram, "tokens": tokens, "files": left})
	s.say("held-out loss: %.3f nats a token; a bigram model of the same %d tokens: %.3f\n", loss, tokens, bigram)
	s.say("curve %s · metrics %s · trace %s · Hugging Face export %s\n", left["curve"], left["metrics"],
		left["trace"], left["export"])
	s.say("done in %v\n", s.so(time.Second))
	switch {
	case loss < bigram:
		return nil
	case s.steps < s.full:
		s.say("after %d steps the model does not beat the bigram model yet; %d steps are enough\n", s.steps, s.full)
		return nil
	}
	return errors.New("the model did not beat the bigram model")
}

// prepare makes a corpus and its tokenizer afresh.
func (s *session) prepare() error {
	if err := s.clear("checkpoints", "run", "dense", "text", "valid", "tokenizer"); err != nil {
		return err
	}
	c, err := demoCorpus()
	if err != nil {
		return err
	}
	if err := c.write(s.dir); err != nil {
		return err
	}
	s.tell("corpus  %d files of %s, %d held out; %d-token byte-level BPE trained on them in %v\n", len(c.train), c.of,
		len(c.valid), demoVocab, s.so(100*time.Millisecond))
	return nil
}

// continued shows how the newest checkpoint goes on with a text.
func (s *session) continued(step int64) error {
	var b strings.Builder
	if err := trained.Continuation(s.in("checkpoints"), "func (r *Reader) Read(p []byte) (n int, err error) {\n",
		sample.Params{Max: 48, Temperature: 0.7, TopP: 0.9, Seed: uint64(step)}, &b); err != nil {
		return err
	}
	s.say("── after step %d, the model continues:\n%s\n", step,
		strings.TrimRight("   "+strings.ReplaceAll(b.String(), "\n", "\n   "), " \n"))
	return nil
}

// bigramLoss counts pairs in the training batches and scores the held-out ones, with the pair's relative frequency
// mixed with the token's own and a uniform rest. The mixing weights are the best of a grid on the held-out batches
// themselves, in the bigram model's favour.
func bigramLoss(c *configs.Run, r *run.Run) (loss float64, tokens int, err error) {
	pair, single, from := map[[2]int32]float64{}, map[int32]float64{}, map[int32]float64{}
	each := func(steps int, sign int64, f func(a, b int32)) error {
		for step := range int64(steps) {
			for dp := range c.Plan.DP {
				mbs, err := r.Batches(sign*(step+1), dp)
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
		}
		return nil
	}
	if err := each(c.Train.Steps, 1, func(a, b int32) {
		pair[[2]int32{a, b}]++
		single[b]++
		from[a]++
		tokens++
	}); err != nil {
		return 0, 0, err
	}
	var held [][2]int32
	if err := each(c.Train.EvalSteps, -1, func(a, b int32) { held = append(held, [2]int32{a, b}) }); err != nil {
		return 0, 0, err
	}
	best := math.Inf(1)
	for _, l2 := range []float64{0.5, 0.6, 0.7, 0.8, 0.9} {
		for _, l0 := range []float64{0.001, 0.01, 0.03} {
			sum := 0.0
			for _, x := range held {
				p := l0/float64(r.Tokenizer().VocabSize()) + (1-l0)*(1-l2)*single[x[1]]/float64(tokens)
				if n := from[x[0]]; n > 0 {
					p += (1 - l0) * l2 * pair[x] / n
				}
				sum -= math.Log(p)
			}
			best = min(best, sum/float64(len(held)))
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

// demoCorpus is the standard library's sources, and where there are none, as where lfactor was installed without Go,
// sources that the demo writes itself.
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

// goRoot is the Go installation whose sources the demo reads: the environment's, or that of the go command on the path.
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
	for i, p := range files {
		text, err := c.read(p)
		if err == nil {
			err = write(filepath.Join(dir, fmt.Sprintf("%05d.txt", i)), text)
		}
		if err != nil {
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
	settings, err := recipes.ReadFile("recipes/text/tokenizer_config.json")
	return errors.Join(err, write(filepath.Join(dir, "tokenizer.json"), text),
		write(filepath.Join(dir, "tokenizer_config.json"), settings))
}
