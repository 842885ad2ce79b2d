package data

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
)

func dataPreview() *cobra.Command {
	c := &cobra.Command{Use: "preview PATH",
		Short: "Write an HTML page with samples: images, videos and conversations",
		Args:  cobra.ExactArgs(1),
		Long: "The page is one file that loads nothing. Samples are spread evenly over the data; one " +
			"that cannot be used shows its reason."}
	o, named := openFlags(c), &sftFlags{}
	named.add(c)
	var out, kind string
	var n int64
	c.Flags().StringVar(&out, "html", "preview.html", "file to write; - writes to the standard output")
	c.Flags().StringVar(&kind, "sample_type", "", "type of the samples; by default each tells")
	c.Flags().Int64VarP(&n, "number", "n", 20, "samples to show")
	c.RunE = func(c *cobra.Command, args []string) error {
		if n < 1 {
			return exit.Usagef("-n %d: want at least 1", n)
		}
		o, err := named.options(*o, args[0])
		if err != nil {
			return err
		}
		p, err := setup.NewPreview(args[0], o, n, kind)
		if err != nil {
			return err
		}
		if out == "-" {
			return p.Write(c.OutOrStdout())
		}
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		if err := errors.Join(p.Write(f), f.Close()); err != nil {
			return err
		}
		return cli.Emit(c, map[string]any{"html": out, "samples": len(p.Samples)},
			func(w io.Writer) { fmt.Fprintf(w, "%s: %d of %d samples\n", out, len(p.Samples), p.All) })
	}
	return c
}
