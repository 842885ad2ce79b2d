package run

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
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

// startedMark begins the line of a run's run.yaml that says in which folder the run was started.
const startedMark = "# The paths below begin at "

// startedIn is that line, nothing where the folder is gone.
func startedIn() []byte {
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "%s%q, where the run was started.\n", startedMark, dir)
}

// startOf is the folder at which the paths of a run's run.yaml begin, nothing where the file does not say.
func startOf(file string) string {
	text, err := os.ReadFile(file)
	rest, ok := bytes.CutPrefix(text, []byte(startedMark))
	var dir string
	if err != nil || !ok {
		return ""
	}
	if n, err := fmt.Sscanf(string(rest), "%q", &dir); n != 1 || err != nil {
		return ""
	}
	return dir
}

// Elsewhere is the folder at which the paths of a run's run.yaml begin if this process works in another one, and
// nothing else: where that folder is gone, whole paths can be read from anywhere.
func Elsewhere(file string) string {
	dir := elsewhereOf(file)
	if i, err := os.Stat(dir); err != nil || !i.IsDir() {
		return ""
	}
	return dir
}

// elsewhereOf is Elsewhere of a folder that may be gone.
func elsewhereOf(file string) string {
	dir := startOf(file)
	here, err := os.Stat(".")
	there, goneErr := os.Stat(dir)
	if dir == "" || err != nil || goneErr == nil && os.SameFile(here, there) {
		return ""
	}
	return dir
}

// elsewhere adds to an error that the paths of a run's configuration begin at another folder than this process
// works in, where that is so.
func elsewhere(file string, err error) error {
	dir := elsewhereOf(file)
	if dir == "" {
		return err
	}
	here, _ := os.Getwd() // it was told just now
	return fmt.Errorf("%w; the paths of %s begin at %s, where the run was started, and this was started in %s: "+
		"start it there", err, file, dir, here)
}

// openAgain opens the training data that a configuration names, and writes nothing. The caller closes it.
func openAgain(file string, args []string) (d *data, conf dataset.LoaderConfig, err error) {
	if d, conf, err = openFile(file, args); err != nil {
		return nil, conf, elsewhere(file, err)
	}
	return d, conf, nil
}

// opened opens the sources, and says what their loader has. A run does more.
func (d *data) opened() (conf dataset.LoaderConfig, err error) {
	if err = d.openKind(); err != nil {
		return conf, err
	}
	sources, _, err := d.openSources()
	if err != nil {
		return conf, err
	}
	conf, err = d.config()
	conf.Sources, conf.Ramps, conf.OrderWindow = sources, d.ramps, orderWindow(sources, d.r.cfg.Run.Data.ShardMix)
	return conf, err
}

// openFile does the work of openAgain.
func openFile(file string, args []string) (d *data, conf dataset.LoaderConfig, err error) {
	cfg, err := configs.Load(configs.Request{File: file, Args: args, Getenv: os.Getenv})
	if err != nil {
		return nil, conf, exit.With(err, exit.Usage)
	}
	r := newRun(cfg, Options{})
	if err = r.readTokenizer(); err != nil {
		return nil, conf, err
	}
	if r.job, err = layout.FromConfig(cfg); err != nil {
		return nil, conf, err
	}
	d = newData(r)
	if conf, err = d.opened(); err != nil {
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
