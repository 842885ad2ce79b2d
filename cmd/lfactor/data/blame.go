package data

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
)

// Blame is what a step saw.
type Blame struct {
	Step    int64            `json:"step"`
	Start   dataset.Position `json:"start"`
	Samples []int64          `json:"samples"`           // places in the run's global order
	Origins []dataset.Origin `json:"origins,omitempty"` // where they come from, found by reading the step again
	Missing string           `json:"missing,omitempty"` // why there are no origins
	// Rewards are those of the answers that the step drew, judged again, with --rewards.
	Rewards []rollout.Judgement `json:"rewards,omitempty"`
}

func dataBlame() *cobra.Command {
	c := &cobra.Command{Use: "blame [RUN] STEP",
		Short: "List the samples that a committed step of a run saw: shard, place and key",
		Args:  cobra.RangeArgs(1, 2),
		Long: "Samples are places in the run's global order, which its seed and sources fix. STEP may " +
			"be \"last\". The step is read again from\n" +
			"the data that the run's own configuration names, from the folder that the run was started " +
			"in; nothing is written. With --rewards the answers that the step drew are judged again, from the " +
			"log alone, and whose reward is\n" +
			"not what was logged is said."}
	rewards := c.Flags().Bool("rewards", false,
		"judge the step's drawn answers again; exit code 1 says that one differs")
	sample := c.Flags().Int64("sample", -1, "with --rewards: the answers to this sample alone")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir, step := runDir(args[:len(args)-1]), args[len(args)-1]
		b, err := ledgerStep(dir, step)
		if err != nil {
			return err
		}
		if b.Origins, err = run.Origins(dir, b.Start); err != nil {
			b.Missing = err.Error()
		}
		if !*rewards {
			return cli.Emit(c, b, b.write)
		}
		if b.Rewards, err = rollout.Judge(dir, b.Step, *sample); err != nil {
			return err
		}
		wrong := 0
		for _, j := range b.Rewards {
			if j.Wrong {
				wrong++
			}
		}
		if err = cli.Emit(c, b, b.judged); err == nil && wrong > 0 {
			err = exit.With(fmt.Errorf("%d of %d answers have another reward or advantage than was logged", wrong,
				len(b.Rewards)), exit.Failed)
		}
		return err
	}
	return c
}

// ledgerStep reads what a run's ledger has of a step.
func ledgerStep(run, step string) (*Blame, error) {
	l, err := dataset.ReadLedger(filepath.Join(run, "samples.ledger"))
	if err != nil {
		return nil, exit.With(err, exit.Corrupt)
	}
	defer l.Close()
	last, ok := l.Last()
	if !ok {
		return nil, fmt.Errorf("%s: no step is recorded", run)
	}
	b := &Blame{Step: last}
	if step != "last" {
		if b.Step, err = strconv.ParseInt(step, 10, 64); err != nil {
			return nil, exit.Usagef("step %q: want a number or \"last\"", step)
		}
	}
	if b.Samples, b.Start, err = l.Blame(b.Step); err != nil {
		return nil, fmt.Errorf("%w; the last recorded is %d", err, last)
	}
	return b, nil
}

func (b *Blame) write(w io.Writer) {
	fmt.Fprintf(w, "step %d began at sample %d of order %s and saw %d samples:\n", b.Step, b.Start.Sample,
		b.Start.Order, len(b.Samples))
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

// judged lists answers with what their reward said, and says of them now.
func (b *Blame) judged(w io.Writer) {
	number := func(x *float64, why string) string {
		if x == nil {
			return "none (" + why + ")"
		}
		return strconv.FormatFloat(*x, 'g', -1, 64)
	}
	fmt.Fprintf(w, "step %d drew these answers:\n", b.Step)
	for _, j := range b.Rewards {
		mark := " "
		if j.Wrong {
			mark = "!"
		}
		fmt.Fprintf(w, "%s sample %d answer %d, weights behind step %d: %q to %q: reward %s, now %s; advantage %.4g",
			mark, j.Sample, j.Index, j.Version, j.Text, j.Prompt, number(j.Was, j.Fault), number(j.Now, j.Why),
			j.Advantage)
		if j.Follows != j.Advantage {
			fmt.Fprintf(w, ", and %.4g follows from the rewards", j.Follows)
		}
		fmt.Fprintln(w)
	}
}
