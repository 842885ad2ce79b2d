package config

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/stages/family"
)

// CheckReport is what `config check` says about a model.
type CheckReport struct {
	File       string           `json:"file,omitempty"`
	Model      string           `json:"model_type"`
	Parts      string           `json:"parts,omitempty"`
	Parameters int64            `json:"parameters"` // 0 while the vocabulary is not known
	Components map[string]int64 `json:"components,omitempty"`
	Published  string           `json:"published,omitempty"`
	Claim      int64            `json:"published_parameters,omitempty"`
	Why        []string         `json:"differences,omitempty"`
	Notices    []string         `json:"notes,omitempty"`
}

// configCheck reports the faults of a run file or of a model file of LoongForge's, or what model they
// describe.
func configCheck(_ *cobra.Command, args []string) error {
	form, args, err := cli.TakeForm(args)
	if err != nil {
		return err
	}
	file, mine, rest := configs.SplitArgs(args, map[string]bool{"tokenizer": true})
	if dir := cli.FlagValue(mine, "tokenizer"); dir != "" {
		rest = append(rest, "data.tokenizer="+dir)
	}
	load := configs.Load
	if file != "" && (configs.LoongFile(file) || configs.ModelFile(file)) || file == "" && configs.LoongFile(configFile(rest)) {
		load = configs.Compose
	}
	cfg, err := load(configs.Request{File: file, Args: rest, Getenv: os.Getenv})
	if err != nil {
		return err
	}
	if file == "" {
		file = configFile(rest)
	}
	report, err := checkModel(cfg, file)
	if err != nil {
		return err
	}
	return cli.EmitAs(os.Stdout, form, report, func(io.Writer) {
		for _, n := range report.Notices {
			fmt.Fprintln(os.Stderr, "note:", n)
		}
		report.print()
	})
}

// configFile is the file of --config-file, "" if there is none.
func configFile(args []string) string {
	for i, a := range args {
		if path, ok := strings.CutPrefix(a, "--config-file="); ok {
			return path
		}
		if a == "--config-file" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// checkModel builds the model and counts it.
func checkModel(cfg *configs.Config, file string) (*CheckReport, error) {
	if cfg.Run.Data.Tokenizer != "" {
		tok, _, err := setup.Tokenizer(cfg)
		if err != nil {
			return nil, err
		}
		if err := cfg.CheckVocab(tok.VocabSize()); err != nil {
			return nil, err
		}
	}
	c := cfg.Model
	r := &CheckReport{File: file, Model: c.ModelType, Notices: cfg.Notices}
	if !c.Vision.None() {
		parts := []string{c.Vision.Kind, c.Vision.Projector, c.Text}
		r.Parts = strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " + ") // a projector may be the tower's own
	}
	if c.Vocab == 0 {
		name, like, ok := c.Like(file)
		if !ok { // the decoder's alone
			alone := c
			alone.ModelType, alone.Text, alone.Vision = c.Text, "", configs.Vision{}
			name, like, ok = alone.Like(file)
		}
		if !ok {
			r.Why = []string{"the vocabulary is the tokenizer's: give --tokenizer DIR to count the parameters"}
			return r, nil
		}
		c.Vocab, cfg.Model.Vocab = like.Vocab, like.Vocab
		r.Why = []string{fmt.Sprintf("counted with the vocabulary of %s, %d: the file leaves it to the tokenizer; --tokenizer DIR counts with that", name, like.Vocab)}
	}
	if _, err := layout.FromConfig(cfg); err != nil {
		return nil, err
	}
	m, err := family.Build(c, cfg.Run.Data.SeqLen)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	r.Parameters, r.Components = m.Count(), map[string]int64{}
	for _, p := range m.Params(nil) {
		n := int64(1)
		for _, d := range p.Shape {
			n *= int64(d)
		}
		r.Components[m.Component(p.Name)] += n
	}
	if name, like, ok := c.Like(file); ok {
		r.Published, r.Claim = fmt.Sprintf("%s, %s", name, like.Source), int64(like.Parameters)
		r.Why = append(r.Why, c.Differences(r.Parameters, like)...)
	}
	if unit := cfg.VocabUnit * cfg.Run.Plan.TP; unit > 0 && c.Vocab%unit != 0 {
		pad := unit - c.Vocab%unit
		n := int64(pad) * int64(c.Hidden)
		if !c.TieEmbeddings {
			n *= 2
		}
		r.Why = append(r.Why, fmt.Sprintf("LoongForge pads the vocabulary to %d rows (make_vocab_size_divisible_by %d × tp %d), %+d parameters that are never used; here it has %d",
			c.Vocab+pad, cfg.VocabUnit, cfg.Run.Plan.TP, n, c.Vocab))
	}
	return r, nil
}

// print writes the report for people.
func (r *CheckReport) print() {
	fmt.Println("ok")
	fmt.Printf("model: %s", r.Model)
	if r.Parts != "" {
		fmt.Printf(" (%s)", r.Parts)
	}
	fmt.Println()
	if r.Parameters > 0 {
		fmt.Printf("parameters: %s\n", grouped(r.Parameters))
	}
	for _, c := range []string{family.Encoder, family.Projector, family.Foundation} {
		if n := r.Components[c]; n > 0 && len(r.Components) > 1 {
			fmt.Printf("  %s: %s\n", c, grouped(n))
		}
	}
	switch {
	case r.Published == "":
	case r.Claim == r.Parameters:
		fmt.Printf("published: the same (%s)\n", r.Published)
	default:
		fmt.Printf("published: %s (%s)\n", grouped(r.Claim), r.Published)
	}
	for _, w := range r.Why {
		fmt.Println("  " + w)
	}
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
