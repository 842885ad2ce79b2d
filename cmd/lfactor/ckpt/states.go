package ckpt

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
	"github.com/lfactor/lfactor/stages/trained"
)

// megatronFlags are those of Megatron's forms.
func (o *conversion) megatronFlags(c *cobra.Command) {
	f := c.Flags()
	f.IntVar(&o.divisible, "vocab-divisible", 128, "with --to megatron or megatron-ranks: rows of the vocabulary "+
		"are filled up to a multiple of this, Megatron's make-vocab-size-divisible-by, times --tp")
	for _, x := range []struct {
		to        *int
		name, doc string
	}{{&o.grid.TP, "tp", "tensor parallelism"}, {&o.grid.PP, "pp", "pipeline parallelism"},
		{&o.grid.VP, "vp", "virtual stages of a rank of the pipeline"}, {&o.grid.EP, "ep", "expert parallelism"}} {
		f.IntVar(x.to, x.name, 1, "with --to megatron or megatron-ranks: ranks of "+x.doc+" that files are cut for")
	}
	f.BoolVar(&o.noOptim, "no-optimizer", false,
		"with --to megatron or lfactor: leave out what the optimizer of SRC keeps")
}

// checkMegatron holds those flags to the others.
func (o *conversion) checkMegatron(c *cobra.Command) error {
	files := o.to == "megatron" || o.to == "megatron-ranks"
	for _, flag := range []string{"vocab-divisible", "tp", "pp", "vp", "ep"} {
		n, err := c.Flags().GetInt(flag)
		if err != nil {
			return err
		}
		if n < 1 || c.Flags().Changed(flag) && !files {
			return exit.Usagef("--%s is for --to megatron and megatron-ranks, and at least 1", flag)
		}
	}
	if o.noOptim && o.to != "megatron" && o.to != "lfactor" {
		return exit.Usagef("--no-optimizer is for --to megatron and --to lfactor: other forms have weights alone")
	}
	return nil
}

// keeps reports whether the destination keeps what an optimizer does.
func (o *conversion) keeps() bool { return !o.noOptim && (o.goal == "megatron" || o.goal == "lfactor") }

// states are what the optimizer of the source keeps, nil for nothing; dir is a Hugging Face directory of
// its model. What has to lie in files meanwhile lies beside dst until it is closed.
func (o *conversion) states(dir, dst string) (*torch.States, error) {
	if !o.keeps() {
		return nil, nil
	}
	switch form(o.src) {
	case "megatron":
		return torch.OpenMegatronStates(torch.MegatronDir(o.src), dir)
	case "deepspeed":
		return namedStates(torch.DeepSpeedDir(o.src), dir)
	case "run":
		return o.ownStates(dst)
	}
	return nil, nil
}

// ownStates are those of a run's checkpoint.
func (o *conversion) ownStates(dst string) (*torch.States, error) {
	t, err := trained.Open(o.src, "", trained.Bare)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if t.Lora != nil || o.average {
		fmt.Fprintf(os.Stderr, "note: %s: what the optimizer keeps is left out: it is of adapters, or of other "+
			"weights than their average\n", o.src)
		return nil, nil
	}
	temp := filepath.Join(filepath.Dir(filepath.Clean(dst)), "."+filepath.Base(dst)+".states")
	if err := os.RemoveAll(temp); err != nil {
		return nil, err
	}
	t.Model.Spec.MTP = t.Cfg.Model.MTPLayers
	e := trained.Exporter{Cfg: t.Cfg, Model: t.Model, Saved: t.Saved}
	st, err := e.ExportStates(temp)
	if err != nil || st == nil {
		return nil, errors.Join(err, os.RemoveAll(temp))
	}
	p := t.Cfg.Run.Optimizer
	st.Adam = torch.Adam{LR: p.LR, Beta1: p.Beta1, Beta2: p.Beta2, Eps: p.Eps, Decay: p.WeightDecay}
	st.Closing(func() error { return os.RemoveAll(temp) })
	return st, nil
}

// namedStates are those of a directory of DeepSpeed, by the names of Hugging Face.
func namedStates(path, dir string) (*torch.States, error) {
	_, st, err := torch.OpenDeepSpeed(path)
	if err != nil || len(st.Kinds) == 0 {
		return nil, errors.Join(err, st.Close())
	}
	for _, kind := range slices.Sorted(maps.Keys(st.Kinds)) {
		if st.Kinds[kind], _, err = trained.Named(st.Kinds[kind], path, dir); err != nil {
			return nil, errors.Join(fmt.Errorf("%s of the optimizer: %w", kind, err), st.Close())
		}
	}
	return st, nil
}
