package run

import (
	"context"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// Origins reads the step that began at a position again, with the configuration of the run directory dir,
// and returns where its samples come from. It writes nothing.
func Origins(dir string, start dataset.Position) ([]dataset.Origin, error) {
	d, conf, err := openAgain(filepath.Join(dir, "run.yaml"), nil)
	if err != nil {
		return nil, err
	}
	defer d.close()
	conf.Budget = dataset.Budget{Fraction: 1}
	if err = d.openTrain(conf); err != nil {
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

// openAgain opens the training data that a configuration names, and writes nothing. The caller closes it.
func openAgain(file string, args []string) (d *data, conf dataset.LoaderConfig, err error) {
	cfg, err := configs.Load(configs.Request{File: file, Args: args, Getenv: os.Getenv})
	if err != nil {
		return nil, conf, err
	}
	r := newRun(cfg, Options{})
	if err = r.readTokenizer(); err != nil {
		return nil, conf, err
	}
	if r.job, err = layout.FromConfig(cfg); err != nil {
		return nil, conf, err
	}
	d = newData(r)
	if err = d.openKind(); err == nil {
		conf.Sources, _, err = d.openSources()
	}
	if err == nil {
		sources := conf.Sources
		conf, err = d.config()
		conf.Sources, conf.OrderWindow = sources, orderWindow(sources, cfg.Run.Data.ShardMix)
	}
	if err != nil {
		d.close()
		return nil, conf, err
	}
	return d, conf, nil
}

// Inspect reads all training data that a configuration names, with its tokenizer, template and processor,
// and tells of each document that training would quarantine. It writes nothing.
func Inspect(ctx context.Context, file string, args []string,
	found func(dataset.Bad)) (in dataset.Inspection, err error) {
	d, conf, err := openAgain(file, args)
	if err != nil {
		return in, err
	}
	defer d.close()
	return dataset.Inspect(ctx, conf, d.r.encoder(), found)
}
