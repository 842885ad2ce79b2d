package config

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/imports"
)

// imported is what config import says in numbers.
type imported struct {
	*imports.Result
	Run  string `json:"run"`            // the run file's text
	File string `json:"file,omitempty"` // where it was written
}

// importCommand is lfactor config import: a run file of another tool's configuration.
func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a run file of a configuration of LLaMA-Factory, Axolotl, TRL or torchtitan",
		Long: "FILE is the other tool's YAML, or torchtitan's TOML, or what the script of --dumper writes of a function of its registry. The run file goes to stdout, or with --out to a file; what is not " +
			"taken over, and why, is said\non stderr and stands in comments above it. LoongForge's files and Megatron-LM's flags need no " +
			"import: `lfactor train` reads them.",
		Args:    cobra.MaximumNArgs(1),
		Example: "  lfactor config import examples/train_lora/llama3_lora_sft.yaml --devices 4 --out run.yaml",
	}
	from := c.Flags().
		String("from", "", "the tool, where its keys do not tell: "+strings.Join(imports.Tools(), ", "))
	devices := c.Flags().
		Int("devices", 1, "devices that the other tool would be started on: batches and replicas follow from them")
	dumper := c.Flags().
		Bool("dumper", false, "print the script in Python that writes a configuration of torchtitan's registry as JSON, with how to run it")
	out := c.Flags().String("out", "", "file for the run file; one that is there is not overwritten")
	_ = c.RegisterFlagCompletionFunc(
		"from",
		cobra.FixedCompletions(imports.Tools(), cobra.ShellCompDirectiveNoFileComp),
	) // the flag is there
	c.RunE = func(c *cobra.Command, args []string) error {
		if *dumper {
			_, err := fmt.Fprint(c.OutOrStdout(), imports.Dumper)
			return err
		}
		if len(args) == 0 {
			return exit.Usagef("config import wants a file")
		}
		if strings.Contains(args[0], ":") {
			if _, err := os.Stat(args[0]); err != nil {
				return exit.Usagef("%s is no file; a function of torchtitan's registry is written as one by the script of lfactor config import --dumper", args[0])
			}
		}
		if *devices < 1 {
			return exit.Usagef("--devices %d: want at least 1", *devices)
		}
		r, err := imports.Import(args[0], imports.Options{Tool: *from, Devices: *devices})
		if err != nil {
			return exit.With(err, exit.Usage)
		}
		if *out != "" {
			f, err := os.OpenFile(*out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if err != nil {
				return fmt.Errorf("%s: %w; an existing file is not overwritten", *out, err)
			}
			if _, err := f.WriteString(r.Text); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return cli.Emit(c, imported{r, r.Text, *out}, func(w io.Writer) {
			for _, d := range r.Differences {
				value := ""
				if d.Value != "" {
					value = "=" + d.Value
				}
				fmt.Fprintf(os.Stderr, "! %s%s: %s\n", d.Key, value, d.Why)
			}
			if *out == "" {
				fmt.Fprint(w, r.Text)
				return
			}
			fmt.Fprintf(os.Stderr, "wrote %s; look at what differs above, then: lfactor config check %s\n", *out, *out)
		})
	}
	return c
}
