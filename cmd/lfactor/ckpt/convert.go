package ckpt

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/topology/machine"
)

// conversion is what the flags of ckpt convert say.
type conversion struct {
	to, dtype string
	overwrite bool
	average   bool
	upcycle   int
	each      int
	seed      uint64
}

// shardBytes is the size of an export's files.
const shardBytes = 5 << 30

// ckptConvertCommand converts between a run's checkpoints, Hugging Face directories and GGUF files, or with
// --upcycle makes a mixture of experts of a dense model.
func ckptConvertCommand() *cobra.Command {
	c := &cobra.Command{Use: "convert SRC DST",
		Short: "Export a run's checkpoint as a Hugging Face directory (or its adapters as PEFT's), and " +
			"convert " +
			"from and to GGUF",
		Args: cobra.ExactArgs(2)}
	var o conversion
	f := c.Flags()
	f.BoolVar(&o.overwrite, "overwrite", false, "replace the files of a DST that has some")
	f.StringVar(&o.to, "to", "", "form of DST: hf, a Hugging Face directory, or gguf, one file; gguf "+
		"where DST ends in .gguf")
	f.StringVar(&o.dtype, "dtype", "", "of the weights: f32, f16 or bf16, and for GGUF q8_0 or q4_0; as "+
		"in SRC where it is not said")
	f.IntVar(&o.upcycle, "upcycle", 0,
		"make a mixture of so many experts of SRC, a Hugging Face directory of a dense model: each is "+
			"a copy of its layer's MLP")
	f.IntVar(&o.each, "experts-per-token", 2, "with --upcycle: experts that a token goes to")
	f.Uint64Var(&o.seed, "seed", 1234, "with --upcycle: of the routers, which begin at random")
	f.BoolVar(&o.average, "ema", false, "export the average of the weights that optimizer.ema keeps")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := o.check(c, args); err != nil {
			return err
		}
		if err := o.convert(args[0], args[1]); err != nil {
			return err
		}
		return cli.Emit(c, map[string]string{"path": args[1]},
			func(io.Writer) { fmt.Fprintln(os.Stderr, "wrote", args[1]) })
	}
	return c
}

// check holds flags to each other and to what is at the destination.
func (o *conversion) check(c *cobra.Command, args []string) error {
	if o.to == "" && strings.HasSuffix(args[1], gguf.Ext) {
		o.to = "gguf"
	}
	switch {
	case o.to != "" && o.to != "hf" && o.to != "gguf":
		return exit.Usagef("--to %s: want hf or gguf", o.to)
	case o.dtype != "" && !slices.Contains(gguf.Written(), o.dtype):
		return exit.Usagef("--dtype %s: want one of %s", o.dtype, strings.Join(gguf.Written(), ", "))
	case o.dtype != "" && o.to != "gguf" && (o.dtype == "q8_0" || o.dtype == "q4_0"):
		return exit.Usagef("--dtype %s is for GGUF: say --to gguf too", o.dtype)
	case o.dtype != "" && o.to != "gguf" && !strings.HasSuffix(args[0], gguf.Ext):
		return exit.Usagef("--dtype is for what is converted from or to GGUF; a run's checkpoint is " +
			"exported in the type of " +
			"the weights that it began with")
	case o.upcycle != 0 && (o.to == "gguf" || strings.HasSuffix(args[0], gguf.Ext)):
		return exit.Usagef("--upcycle makes a Hugging Face directory of one")
	}
	for _, flag := range []string{"experts-per-token", "seed"} {
		if c.Flags().Changed(flag) && !c.Flags().Changed("upcycle") {
			return exit.Usagef("--%s is for --upcycle, which makes a mixture of a dense model; say "+
				"that too, or leave it out", flag)
		}
	}
	if o.upcycle == 0 && c.Flags().Changed("upcycle") {
		return exit.Usagef("--upcycle 0: want a number of experts")
	}
	if o.to == "gguf" {
		if machine.Exists(args[1]) && !o.overwrite {
			return exit.Usagef("%s exists: name another file, or say --overwrite", args[1])
		}
		return nil
	}
	if old, err := os.ReadDir(args[1]); err == nil && len(old) > 0 && !o.overwrite {
		return exit.Usagef("%s is not empty (it has %s): name another directory, or say --overwrite",
			args[1], old[0].Name())
	}
	return nil
}

// convert makes dst of src, whatever the two are.
func (o *conversion) convert(src, dst string) error {
	switch {
	case o.upcycle != 0:
		if err := trained.Upcycle(src, dst, o.upcycle, o.each, o.seed); err != nil {
			return fmt.Errorf("upcycling %s: %w", src, err)
		}
		return nil
	case strings.HasSuffix(src, gguf.Ext) && o.to == "gguf":
		return exit.Usagef("%s is GGUF already: convert it to a Hugging Face directory, and that to "+
			"another type", src)
	case strings.HasSuffix(src, gguf.Ext):
		return gguf.Import(src, dst, o.dtype, shardBytes)
	case o.to == "gguf" && machine.Exists(filepath.Join(src, "config.json")):
		return gguf.Export(src, dst, o.dtype)
	case o.to == "gguf":
		return o.through(src, dst)
	}
	return o.export(src, dst)
}

// through makes a GGUF file of a run's checkpoint by way of a Hugging Face directory beside it.
func (o *conversion) through(src, dst string) error {
	dir, err := os.MkdirTemp(filepath.Dir(dst), "."+filepath.Base(dst)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := o.export(src, dir); err != nil {
		return err
	}
	return gguf.Export(dir, dst, o.dtype)
}

// export writes a run's checkpoint as a Hugging Face directory.
func (o *conversion) export(src, dst string) error {
	t, err := trained.Open(src, "", trained.Average(o.average))
	if err != nil {
		return err
	}
	defer t.Close()
	if t.Saved == nil {
		return exit.Usagef("%s is a Hugging Face directory already; `lfactor train` with "+
			"train.steps=0 makes a checkpoint of one", src)
	}
	t.Model.Spec.MTP = t.Cfg.Model.MTPLayers
	e := trained.Exporter{Cfg: t.Cfg, Model: t.Model, Lora: t.Lora, Saved: t.Saved,
		Side: trained.SideDir(t.Cfg)}
	if err := e.Write(dst); err != nil {
		return fmt.Errorf("export to %s: %w", dst, err)
	}
	return nil
}
