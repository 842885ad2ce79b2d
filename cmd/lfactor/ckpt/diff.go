package ckpt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// ckptDiffCommand compares two checkpoints, of whatever forms. As with diff, the exit code is 1 if they differ.
func ckptDiffCommand() *cobra.Command {
	c := &cobra.Command{Use: "diff A B",
		Short: "Compare the tensors of two checkpoints, of any two forms; exit code 1 if they differ",
		Long: "A and B are runs' checkpoints, Hugging Face directories, GGUF, or what PyTorch, " +
			"torch.distributed.checkpoint or " +
			"Megatron has saved. Two of one form are compared to the bit, by their own names. Two of " +
			"different forms are compared " +
			"by the names of Hugging Face's files: forms differ in types, so what is wider is rounded " +
			"to the narrower first.",
		Args: cobra.ExactArgs(2)}
	like := c.Flags().String("like", "", "Hugging Face directory with config.json of the model, for a form that "+
		"has none; A or B where it is one")
	numbers := c.Flags().Bool("numbers", false,
		"compare numbers of two types in one form too: the wider rounded to the narrower")
	c.RunE = func(c *cobra.Command, args []string) error {
		d := differ{like: *like, w: c.ErrOrStderr()}
		defer d.close()
		ds, err := d.differences(args[0], args[1], *numbers)
		if err != nil {
			return err
		}
		err = cli.Emit(c, ds, func(w io.Writer) {
			for _, d := range ds {
				fmt.Fprintln(w, d)
			}
			if len(ds) == 0 {
				fmt.Fprintln(w, "equal")
			}
		})
		if err == nil && len(ds) > 0 {
			err = exit.With(errors.New(""), exit.Failed) // the differences were printed
		}
		return err
	}
	return c
}

// differ opens what is compared, and what has to be closed and removed behind that.
type differ struct {
	like string
	w    io.Writer
	open []checkpoint.Source
	temp []string
}

func (d *differ) close() {
	for _, s := range d.open {
		_ = s.Close() // it was only read
	}
	for _, dir := range d.temp {
		_ = os.RemoveAll(dir) // it is below the system's folder for such
	}
}

// form names how a checkpoint is kept.
func form(path string) string {
	switch {
	case strings.HasSuffix(path, gguf.Ext):
		return "gguf"
	case torch.MegatronDir(path) != "":
		return "megatron"
	case torch.DeepSpeedDir(path) != "":
		return "deepspeed"
	case foreign(path) && !checkpoint.IsDir(path):
		return "torch"
	case machine.Exists(filepath.Join(path, "latest")), machine.Exists(filepath.Join(path, "manifest.json")):
		return "run"
	}
	return "hf"
}

func (d *differ) differences(a, b string, numbers bool) ([]checkpoint.Difference, error) {
	for _, path := range []string{a, b} {
		if !machine.Exists(path) {
			return nil, fmt.Errorf("%s: %w", path, checkpoint.ErrNone)
		}
	}
	if form(a) == form(b) && form(a) != "megatron" && form(a) != "deepspeed" {
		x, err := d.keep(openAny(a))
		if err != nil {
			return nil, err
		}
		y, err := d.keep(openAny(b))
		if err != nil {
			return nil, err
		}
		if numbers {
			return checkpoint.DiffNumbers(x, y)
		}
		return checkpoint.Diff(x, y)
	}
	x, err := d.named(a, b)
	if err != nil {
		return nil, err
	}
	y, err := d.named(b, a)
	if err != nil {
		return nil, err
	}
	return checkpoint.DiffNumbers(x, y)
}

func (d *differ) keep(s checkpoint.Source, err error) (checkpoint.Source, error) {
	if err == nil {
		d.open = append(d.open, s)
	}
	return s, err
}

// named is a checkpoint by the names of Hugging Face's files, with the numbers that are in few bits unpacked.
func (d *differ) named(path, other string) (checkpoint.Source, error) {
	switch form(path) {
	case "hf":
		src, err := d.keep(checkpoint.OpenDir(path))
		if err != nil {
			return nil, err
		}
		return quant.Dequantized(src, path)
	case "gguf": // whose names are read as Hugging Face's
		return d.keep(openAny(path))
	case "torch", "megatron", "deepspeed":
		sides, err := d.sides(path, other)
		if err != nil {
			return nil, err
		}
		src, err := d.keep(openTorch(d.w, path, sides))
		if err != nil {
			return nil, err
		}
		named, dropped, err := trained.Named(src, path, sides)
		for _, x := range dropped {
			fmt.Fprintf(d.w, "note: %s: %v\n", path, x)
		}
		return named, err
	}
	dir, err := os.MkdirTemp("", "lfactor-diff-")
	if err != nil {
		return nil, err
	}
	d.temp = append(d.temp, dir)
	o := conversion{to: "hf"}
	if err := o.folder(path, filepath.Join(dir, "hf"), ""); err != nil {
		return nil, err
	}
	return d.keep(checkpoint.OpenDir(filepath.Join(dir, "hf")))
}

// sides is the directory that says which model PyTorch's or Megatron's files are of.
func (d *differ) sides(path, other string) (string, error) {
	if d.like != "" {
		return d.like, nil
	}
	for _, dir := range []string{path, filepath.Dir(path), other} {
		if machine.Exists(filepath.Join(dir, "config.json")) {
			return dir, nil
		}
	}
	dir, err := saidModel(path)
	d.temp = append(d.temp, dir)
	return dir, err
}

// saidModel is a new folder with the config.json that Megatron's files say by their own settings.
func saidModel(path string) (dir string, err error) {
	var text []byte
	if at := torch.MegatronDir(path); at != "" {
		text, err = torch.ModelOf(at)
	}
	if text == nil {
		return "", cmp.Or(err, exit.Usagef("%s does not say which model it is of: name a directory with its config.json by --like", path))
	}
	if dir, err = os.MkdirTemp("", "lfactor-model-"); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}
