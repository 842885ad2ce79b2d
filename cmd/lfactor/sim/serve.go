package sim

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/sim/serving"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Served is what clients of a simulated server see, in seconds.
type Served struct {
	First     [2]float64     `json:"time_to_first_token"` // p50 and p99
	Between   [2]float64     `json:"inter_token_latency"`
	Whole     [2]float64     `json:"e2e_request_latency"`
	Tokens    float64        `json:"tokens_per_second"`
	Answers   float64        `json:"answers_per_second"`
	Ends      map[string]int `json:"ends"`
	Shared    int64          `json:"shared_prompt_tokens"`
	Preempted int64          `json:"preempted"`
	Steps     int64          `json:"steps"`
}

// served are the flags of sim serve that are no world's.
type served struct {
	cluster, software, precision, steps, keep string
	tp                                        int
}

func serveCommand() *cobra.Command {
	c := &cobra.Command{Use: "serve [MODEL | RUN.yaml] [flags]",
		Short: "What clients of lfactor serve will see: times to the first token and between tokens, under a load",
		Long: "The server's queue and engine run in virtual time, without the model's numbers. What a step takes is " +
			"measured on this machine\nwith MODEL's weights (--keep writes it to a file), read from such a file (--steps), " +
			"or priced on a described machine (--cluster).",
		Args: cobra.MaximumNArgs(1)}
	f := c.Flags()
	w := serving.World{}
	var o served
	f.IntVar(&w.Requests, "requests", 1000, "requests in all")
	f.Float64Var(&w.Rate, "rate", 0, "requests a second, which come at random moments; in place of --clients")
	f.IntVar(&w.Clients, "clients", 0, "clients that each ask again when they are answered; 8 where neither is said")
	f.Float64Var(&w.Prompt.Median, "prompt", 256, "tokens of a prompt: the median")
	f.Float64Var(&w.Prompt.Spread, "prompt-spread", 0.5, "how far prompts lie apart: σ of their logarithm")
	f.Float64Var(&w.Answer.Median, "answer", 128, "tokens of an answer: the median")
	f.Float64Var(&w.Answer.Spread, "answer-spread", 0.5, "how far answers lie apart: σ of their logarithm")
	f.IntVar(&w.Common, "common", 0, "tokens that all prompts begin with, of theirs")
	f.IntVar(&w.Keys, "keys", 1, "keys of clients, which have fair shares")
	f.Float64Var(&w.Aborts, "aborts", 0, "share of requests whose client goes away, within --patience")
	f.Float64Var(&w.Patience, "patience", 0, "seconds after which a client goes away; 0 is never")
	f.IntVar(&w.Engine.Pages, "pages", 1024, fmt.Sprintf("serve's --pages, of %d tokens each", sample.PageRows))
	f.IntVar(&w.Engine.Rows, "step-tokens", 256, "serve's --step-tokens")
	f.IntVar(&w.Engine.Running, "running", 64, "serve's --running")
	f.IntVar(&w.Queue, "queue", 256, "serve's --queue")
	f.IntVar(&w.Tokens, "queue-tokens", 1<<20, "serve's --queue-tokens")
	f.Uint64Var(&w.Seed, "seed", 1, "of lengths and moments")
	f.StringVar(&o.cluster, "cluster", "", "price steps on a machine: one that comes with lfactor ("+
		strings.Join(configs.Clusters(), ", ")+") or a file")
	f.StringVar(&o.software, "software", "", "the machine's software, as lfactor sim takes it")
	f.IntVar(&o.tp, "tp", 1, "devices of --cluster that share the model")
	f.StringVar(&o.precision, "precision", "", "of weights, keys and values: fp32 or bf16; bf16 with --cluster where it "+
		"is not said, else fp32")
	f.StringVar(&o.steps, "steps", "", "file of measured steps, as --keep writes it")
	f.StringVar(&o.keep, "keep", "", "write measured steps to a file")
	cli.OnProcessor(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if w.Clients == 0 && w.Rate == 0 {
			w.Clients = 8
		}
		if err := checkServed(&w, &o, args); err != nil {
			return err
		}
		context := w.Engine.Pages * sample.PageRows
		w.Prompt.Most, w.Answer.Most = max(1, context*3/4), max(1, context/4)
		var err error
		if w.Step, err = stepTimes(c, &o, &w, args); err != nil {
			return err
		}
		r, err := serving.Run(w)
		if err != nil {
			return err
		}
		ends := func(x []float64) [2]float64 { return [2]float64{serving.Quantile(x, 0.5), serving.Quantile(x, 0.99)} }
		s := Served{First: ends(r.First), Between: ends(r.Between), Whole: ends(r.Whole), Ends: r.Ends,
			Shared: r.Stats.Shared, Preempted: r.Stats.Preempted, Steps: r.Stats.Steps}
		if r.Time > 0 {
			s.Tokens, s.Answers = float64(r.Drawn)/r.Time, float64(r.Ends["length"])/r.Time
		}
		return cli.Emit(c, s, func(io.Writer) { printServed(&s) })
	}
	return c
}

// checkServed refuses what cannot be simulated.
func checkServed(w *serving.World, o *served, args []string) error {
	e := &w.Engine
	switch {
	case w.Requests < 1 || w.Requests > 1<<20 || w.Clients < 0 || !(w.Rate >= 0) || w.Keys < 1 || !(w.Patience >= 0) ||
		w.Common < 0 || !(w.Prompt.Median >= 1) || !(w.Answer.Median >= 1) || !(w.Prompt.Spread >= 0) ||
		!(w.Answer.Spread >= 0) || !(w.Aborts >= 0 && w.Aborts <= 1):
		return exit.Usagef("sim serve: counts and lengths are above 0 (--requests up to %d), times are not negative, "+
			"and --aborts is a share", 1<<20)
	case e.Pages < 1 || e.Rows < 1 || e.Running < 1 || w.Queue < 1 || w.Tokens < 1 || o.tp < 1:
		return exit.Usagef("sim serve: --pages, --step-tokens, --running, --queue, --queue-tokens, --tp are above 0")
	case w.Clients > 0 && w.Rate > 0:
		return exit.Usagef("sim serve: --clients ask when they are answered, requests at a --rate by themselves: want one")
	case w.Aborts > 0 && w.Patience == 0:
		return exit.Usagef("sim serve: --aborts wants --patience, within which clients go away")
	case (o.steps != "") == (len(args) > 0):
		return exit.Usagef("sim serve: want MODEL, whose steps are measured or priced, or --steps with those that were")
	case o.steps != "" && (o.cluster != "" || o.keep != "") || o.cluster != "" && o.keep != "":
		return exit.Usagef("sim serve: steps are measured, read from --steps or priced on --cluster: --keep is for " +
			"measured ones")
	case o.cluster == "" && (o.tp > 1 || o.software != ""):
		return exit.Usagef("sim serve: --tp and --software are read with --cluster")
	}
	if _, ok := fit.Precisions[o.precision]; !ok && o.precision != "" || o.precision == "fp16" {
		return exit.Usagef("sim serve: --precision is fp32 or bf16")
	}
	return nil
}

// stepTimes is what a step takes.
func stepTimes(c *cobra.Command, o *served, w *serving.World, args []string) (func(l sample.Load) float64, error) {
	if o.steps != "" {
		return readSteps(o.steps)
	}
	d, e := fit.Precisions[o.precision], w.Engine
	if o.cluster != "" {
		if o.precision == "" {
			d = tensor.BF16
		}
		of, done, err := modelOf(args[0])
		if err != nil {
			return nil, err
		}
		defer done()
		name := o.cluster
		if o.software != "" {
			name += rehearsal.Under + o.software
		}
		m, err := rehearsal.Machine(name)
		if err != nil {
			return nil, err
		}
		if o.tp > m.Devices*m.Hosts {
			return nil, exit.Usagef("sim serve: --tp %d: %s has %d devices", o.tp, m.Name, m.Devices*m.Hosts)
		}
		weights, token := serving.Memory(of, d)
		need, have := float64(weights+int64(e.Pages*sample.PageRows)*token), float64(o.tp)*m.Least()
		if need > have {
			fmt.Fprintf(c.ErrOrStderr(), "note: weights and %d pages take %s, and %d devices of %s have %s\n", e.Pages,
				unit.Bytes(need), o.tp, m.Name, unit.Bytes(have))
		}
		return serving.On(rehearsal.Dispatching(m, of).Planned(o.tp, of.Low != nil), of, d, o.tp), nil
	}
	steps, err := stepsOf(c, args[0], d, w)
	if err == nil && o.keep != "" {
		err = writeSteps(o.keep, steps)
	}
	if err != nil {
		return nil, err
	}
	t, err := serving.Fit(steps)
	if err != nil {
		return nil, err
	}
	return t.Step, nil
}

// modelOf is the model of a run file or of a folder, whose weights are not read.
func modelOf(path string) (*family.Model, func(), error) {
	if strings.HasSuffix(path, ".yaml") {
		cfg, err := setup.Config(path, "", nil, false)
		if err != nil {
			return nil, nil, err
		}
		if err := setup.Vocabulary(cfg); err != nil {
			return nil, nil, err
		}
		j, err := layout.FromConfig(cfg)
		if err != nil {
			return nil, nil, err
		}
		return j.Model, func() {}, nil
	}
	m, err := trained.Open(path, "")
	if err != nil {
		return nil, nil, err
	}
	return m.Model, m.Close, nil
}

// measuredMost is the tokens of answers that are measured together: what there is of longer ones follows from these.
const measuredMost = 2048

// stepsOf has an engine compute loads of all classes, and takes their times.
func stepsOf(c *cobra.Command, path string, d tensor.DType, w *serving.World) ([]serving.Measured, error) {
	m, err := trained.Open(path, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	e, free, err := m.Engine(d, w.Engine, nil)
	if err != nil {
		return nil, err
	}
	defer free()
	var out []serving.Measured
	seen := map[sample.Load]int{}
	id := int32(1)
	for _, long := range []int{sample.PageRows, int(w.Prompt.Median + w.Answer.Median)} {
		for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
			length := min(long, e.Context()-8)
			room := min(w.Engine.Pages*sample.PageRows, measuredMost)
			if n > w.Engine.Running || length < 2 || n*(length+8) > room && n > 1 {
				continue
			}
			fmt.Fprintf(c.ErrOrStderr(), "measuring %d answers behind %d tokens\n", n, length)
			for range n {
				r := &sample.Request{Prompt: make([]int32, length), Params: sample.Params{Max: 6},
					Done: func(sample.End) {}, Emit: func(sample.Token) bool { return true }}
				for i := range r.Prompt {
					r.Prompt[i] = (id*31 + int32(i)*7) % int32(m.Model.Spec.Vocab)
				}
				id++
				if err := e.Submit(r); err != nil {
					return nil, err
				}
			}
			for e.Busy() {
				began := time.Now()
				if err := e.Step(); err != nil {
					return nil, err
				}
				class := e.Load().Class()
				if class.Sequences = 0; seen[class] > 0 { // the first one records a trace
					out = append(out, serving.Measured{Load: e.Load(), Seconds: time.Since(began).Seconds()})
				}
				seen[class]++
			}
		}
	}
	return out, nil
}

// stepColumns are those of a file of measured steps.
var stepColumns = []string{"rows", "keys", "heads", "sequences", "seconds"}

func writeSteps(path string, steps []serving.Measured) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	rows := [][]string{stepColumns}
	for _, m := range steps {
		rows = append(rows, []string{strconv.Itoa(m.Rows), strconv.Itoa(m.Keys), strconv.Itoa(m.Heads),
			strconv.Itoa(m.Sequences), strconv.FormatFloat(m.Seconds, 'g', 6, 64)})
	}
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func readSteps(path string) (func(l sample.Load) float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &configs.Error{File: path, Why: err.Error()}
	}
	defer f.Close() //nolint:errcheck // it is read
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) == 0 || !slices.Equal(rows[0], stepColumns) {
		return nil, &configs.Error{File: path, Line: 1, Try: "lfactor sim serve MODEL --keep FILE",
			Why: "it is no file of steps, whose first line is " + strings.Join(stepColumns, ",")}
	}
	var steps []serving.Measured
	for i, row := range rows[1:] {
		var v [5]float64
		for k, s := range row {
			if v[k], err = strconv.ParseFloat(s, 64); err != nil || !(v[k] >= 0 && v[k] < 1e9) {
				return nil, &configs.Error{File: path, Line: i + 2, Key: stepColumns[k],
					Why: fmt.Sprintf("%q is no number of a step", s)}
			}
		}
		l := sample.Load{Rows: int(v[0]), Keys: int(v[1]), Heads: int(v[2]), Sequences: int(v[3])}
		steps = append(steps, serving.Measured{Load: l, Seconds: v[4]})
	}
	t, err := serving.Fit(steps)
	if err != nil {
		return nil, &configs.Error{File: path, Why: err.Error()}
	}
	return t.Step, nil
}

func printServed(s *Served) {
	t := cli.TextTable("", "p50", "p99")
	for _, x := range []struct {
		name string
		of   [2]float64
	}{{"first token", s.First}, {"between tokens", s.Between}, {"whole answer", s.Whole}} {
		t.AppendRow([]any{x.name, unit.Seconds(x.of[0]), unit.Seconds(x.of[1])})
	}
	t.Render()
	ends := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Ends), "map[]"), " ", ", ")
	fmt.Fprintf(cli.Out, "%.1f tokens/s, %.2f answers/s, ends: %s; %d prompt tokens were shared, %d answers gave "+
		"their pages up\n", s.Tokens, s.Answers, ends, s.Shared, s.Preempted)
}
