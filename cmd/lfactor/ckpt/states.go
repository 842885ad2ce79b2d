package ckpt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
)

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
		fmt.Fprintf(os.Stderr, "note: %s: what the optimizer keeps is left out: it is of adapters, or "+
			"of other weights than "+
			"their average\n", o.src)
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
