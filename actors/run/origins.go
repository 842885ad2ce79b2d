package run

import (
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// Origins reads the step that began at a position again, with the configuration of the run directory dir, and returns where its samples
// come from. It writes nothing.
func Origins(dir string, start dataset.Position) ([]dataset.Origin, error) {
	cfg, err := configs.Load(configs.Request{File: filepath.Join(dir, "run.yaml"), Getenv: os.Getenv})
	if err != nil {
		return nil, err
	}
	r := newRun(cfg, Options{})
	if r.tok, r.conf, err = setup.Tokenizer(cfg); err != nil {
		return nil, err
	}
	if r.job, err = layout.FromConfig(cfg); err != nil {
		return nil, err
	}
	d := &data{r: r, recent: map[int64]*made{}, work: map[int64]float64{}}
	defer d.close()
	if cfg.Run.Data.Kind == "media" {
		if err := d.openPictures(); err != nil {
			return nil, err
		}
	}
	train, _, err := d.openSources()
	if err != nil {
		return nil, err
	}
	conf, err := d.config()
	if err != nil {
		return nil, err
	}
	conf.Sources, conf.OrderWindow, conf.Budget = train, orderWindow(train, cfg.Run.Data.ShardMix), dataset.Budget{Fraction: 1}
	if d.train, err = dataset.OpenLoader(conf, r.tok); err != nil {
		return nil, err
	}
	if err := d.train.Seek(start); err != nil {
		return nil, err
	}
	batches, err := d.train.Step(start.Step)
	if err != nil {
		return nil, err
	}
	var out []dataset.Origin
	for i := range batches {
		out = append(out, batches[i].Origins...)
	}
	return out, nil
}
