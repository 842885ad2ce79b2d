package data

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
)

func dataBench() *cobra.Command {
	var b setup.StreamBench
	c := &cobra.Command{Use: "bench PATH…",
		Short: "Measure how fast data can be read; bench/data.py measures Python's webdataset beside it",
		Args:  cobra.MinimumNArgs(1)}
	o := openFlags(c)
	c.Flags().Int64Var(&b.Samples, "samples", 0,
		"samples to read, going over the data again as needed; by default each once")
	c.Flags().IntVar(&b.Readers, "readers", 1, "shards read at once")
	c.Flags().IntVar(&b.Side, "decode", 0, "also decode images and resize them to a square of so many pixels")
	chunk := c.Flags().Int("chunk", 0, "recordings of robots: frames in an order that is drawn, each with so many "+
		"actions and its pictures decoded")
	c.RunE = func(c *cobra.Command, args []string) error {
		if b.Readers < 1 || b.Samples < 0 || b.Side < 0 {
			return exit.Usagef("--readers %d, --samples %d, --decode %d: want positive numbers", b.Readers,
				b.Samples, b.Side)
		}
		if *chunk < 0 || *chunk > 0 && (b.Readers > 1 || b.Side > 0) {
			return exit.Usagef("--chunk %d: want a positive number, without --readers and --decode", *chunk)
		}
		b.Options = *o
		b.Options.Horizon = *chunk
		r, err := b.Run(c.Context(), args)
		if c.Context().Err() != nil {
			return exit.With(errors.New("interrupted"), exit.Interrupted)
		}
		if err != nil {
			return err
		}
		return cli.Emit(c, r, func(w io.Writer) { writeBench(w, r) })
	}
	return c
}

// writeBench writes what was measured for people.
func writeBench(w io.Writer, r *setup.StreamReport) {
	fmt.Fprintf(w, "%d samples, %d MB in %.2f s and %.2f s of CPU: %.0f samples and %.0f MB a CPU second\n",
		r.Samples, r.Bytes/1e6, r.Seconds, r.CPU, r.Rate, r.MBRate)
	fmt.Fprintf(w, "memory %d MiB, %+.3f MiB for each 100,000 samples after the first; %.2f s of CPU to "+
		"find the samples\n", r.RSS>>20, r.SlopeMiB, r.OpenCPU)
	if r.Bad > 0 {
		fmt.Fprintf(w, "%d bad samples\n", r.Bad)
	}
}
