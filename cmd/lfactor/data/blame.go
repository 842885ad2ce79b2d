package data

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/cmd/lfactor/setup"
	"github.com/lfactor/lfactor/cmd/lfactor/training"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
)

// Blame is what a step saw.
type Blame struct {
	Step    int64            `json:"step"`
	Start   dataset.Position `json:"start"`
	Samples []int64          `json:"samples"`           // places in the run's global order
	Origins []dataset.Origin `json:"origins,omitempty"` // where they come from, found by reading the step again
	Missing string           `json:"missing,omitempty"` // why there are no origins
}

func dataBlame() *cobra.Command {
	c := &cobra.Command{Use: "blame [RUN] STEP", Short: "List the samples that a committed step of a run saw: shard, place and key", Args: cobra.RangeArgs(1, 2),
		Long: "Samples are places in the run's global order, which its seed and sources fix. STEP may be \"last\". The step is read again from\n" +
			"the data that the run's own configuration names, from the folder that the run was started in; nothing is written."}
	c.RunE = func(c *cobra.Command, args []string) error {
		run, step := runDir(args[:len(args)-1]), args[len(args)-1]
		b, err := ledgerStep(run, step)
		if err != nil {
			return err
		}
		if b.Origins, err = replay(run, b); err != nil {
			b.Missing = err.Error()
		}
		return cli.Emit(c, b, b.write)
	}
	return c
}

// ledgerStep reads what a run's ledger has of a step.
func ledgerStep(run, step string) (*Blame, error) {
	l, err := dataset.ReadLedger(filepath.Join(run, "samples.ledger"))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	last, ok := l.Last()
	if !ok {
		return nil, fmt.Errorf("%s: no step is recorded", run)
	}
	b := &Blame{Step: last}
	if step != "last" {
		if b.Step, err = strconv.ParseInt(step, 10, 64); err != nil {
			return nil, cli.Usage("step %q: want a number or \"last\"", step)
		}
	}
	if b.Samples, b.Start, err = l.Blame(b.Step); err != nil {
		return nil, fmt.Errorf("%w; the last recorded is %d", err, last)
	}
	return b, nil
}

func (b *Blame) write(w io.Writer) {
	fmt.Fprintf(w, "step %d began at sample %d of order %s and saw %d samples:\n", b.Step, b.Start.Sample, b.Start.Order, len(b.Samples))
	if b.Missing != "" {
		for _, s := range b.Samples {
			fmt.Fprintln(w, s)
		}
		fmt.Fprintf(w, "where they come from is not known: %s\n", b.Missing)
		return
	}
	for _, o := range b.Origins {
		fmt.Fprintf(w, "%8d  %s", o.Sample, o.Place)
		if o.Key != "" {
			fmt.Fprintf(w, "  %s", o.Key)
		}
		fmt.Fprintln(w)
	}
}

// replay reads a step again and returns where its samples come from.
func replay(dir string, b *Blame) ([]dataset.Origin, error) {
	cfg, err := configs.Load(configs.Request{File: filepath.Join(dir, "run.yaml"), Getenv: os.Getenv})
	if err != nil {
		return nil, err
	}
	r := &training.Run{Cfg: cfg}
	if r.Tok, r.Conf, err = setup.Tokenizer(cfg); err != nil {
		return nil, err
	}
	if r.Job, err = setup.Job(cfg); err != nil {
		return nil, err
	}
	d := &training.Data{R: r, Recent: map[int64]*training.Made{}, Work: map[int64]float64{}}
	defer d.Close()
	if cfg.Run.Data.Kind == "media" {
		if err := d.OpenPictures(); err != nil {
			return nil, err
		}
	}
	train, _, err := d.OpenSources()
	if err != nil {
		return nil, err
	}
	conf, err := d.Config()
	if err != nil {
		return nil, err
	}
	conf.Sources, conf.OrderWindow, conf.Budget = train, training.OrderWindow(train, cfg.Run.Data.ShardMix), dataset.Budget{Fraction: 1}
	if d.Train, err = dataset.OpenLoader(conf, r.Tok); err != nil {
		return nil, err
	}
	if err := d.Train.Seek(b.Start); err != nil {
		return nil, err
	}
	batches, err := d.Train.Step(b.Start.Step)
	if err != nil {
		return nil, err
	}
	var out []dataset.Origin
	for i := range batches {
		out = append(out, batches[i].Origins...)
	}
	return out, nil
}
