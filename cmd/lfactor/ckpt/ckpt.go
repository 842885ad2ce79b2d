// Package ckpt is the verb of that name: it parses, calls and prints.
package ckpt

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
	"github.com/lfactor/lfactor/topology/machine"
)

// Command is lfactor ckpt: work on checkpoints.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "ckpt", Short: "List, verify, convert, compare and prune checkpoints"}
	c.AddCommand(&cobra.Command{Use: "ls DIR", Short: "List the checkpoints of a directory, newest first",
		Args: cobra.ExactArgs(1), RunE: ckptList}, &cobra.Command{Use: "verify PATH",
		Short: "Read every byte of a checkpoint, or of all below a directory, and compare hashes",
		Args:  cobra.ExactArgs(1), RunE: ckptVerify}, ckptDiffCommand(), ckptConvertCommand(), ckptPruneCommand(),
		loongCommand())
	return c
}

func ckptList(c *cobra.Command, args []string) error {
	entries, err := checkpoint.List(args[0])
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("%s: %w", args[0], checkpoint.ErrNone)
	}
	return cli.Emit(c, entries, func(w io.Writer) {
		for _, e := range entries {
			mark := "  "
			if e.Latest {
				mark = "* "
			}
			fmt.Fprintf(w, "%sstep %-10d %s  %s\n", mark, e.Step, e.Saved.Format(time.DateTime), e.Path)
		}
	})
}

// openAny opens an own checkpoint, the newest of a directory of them, a Hugging Face directory, a GGUF file
// or what PyTorch has saved.
func openAny(path string) (checkpoint.Source, error) {
	if dir := torch.DeepSpeedDir(path); dir != "" { // it has a file named latest too
		src, _, err := torch.OpenDeepSpeed(dir)
		return src, err
	}
	if machine.Exists(filepath.Join(path, "latest")) {
		latest, err := checkpoint.Latest(path)
		if err != nil {
			return nil, err
		}
		path = latest
	}
	if machine.Exists(filepath.Join(path, "manifest.json")) {
		r, err := checkpoint.Open(path)
		if err != nil {
			return nil, err
		}
		return ownParams{r.Kind(checkpoint.Param), r}, nil
	}
	if !machine.Exists(path) {
		return nil, fmt.Errorf("%s: %w", path, checkpoint.ErrNone)
	}
	switch {
	case strings.HasSuffix(path, gguf.Ext):
		return gguf.Open(path)
	case torch.IsDCP(path):
		return torch.OpenDCP(path)
	case torch.IsFile(path), torch.IsDir(path) && !checkpoint.IsDir(path):
		return torch.Open(path)
	}
	return checkpoint.OpenDir(path)
}

// ownParams is the parameters of an own checkpoint as a source that closes it.
type ownParams struct {
	checkpoint.Source
	r *checkpoint.Reader
}

// Close closes the checkpoint.
func (o ownParams) Close() error { return o.r.Close() }

// verified is what became of one checkpoint.
type verified struct {
	Path     string   `json:"path"`
	OK       bool     `json:"ok"`
	Error    string   `json:"error,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// ckptVerify verifies one checkpoint, or all of a run's folder. All are looked at even if one is at fault.
func ckptVerify(c *cobra.Command, args []string) error {
	paths := []string{args[0]}
	if machine.Exists(filepath.Join(args[0], "latest")) && torch.DeepSpeedDir(args[0]) == "" {
		entries, err := checkpoint.List(args[0])
		if err != nil {
			return err
		}
		paths = paths[:0]
		for _, e := range entries {
			paths = append(paths, e.Path)
		}
	}
	var errs []error
	var all []verified
	for _, p := range paths {
		v := verified{Path: p, OK: true}
		if err := verifyOne(&v); err != nil {
			errs, v.OK, v.Error = append(errs, err), false, err.Error()
		}
		for _, w := range v.Warnings {
			fmt.Fprintf(os.Stderr, "warning: %s: %s\n", p, w)
		}
		all = append(all, v)
	}
	err := cli.Emit(c, all, func(w io.Writer) {
		for _, v := range all {
			mark := "✓"
			if !v.OK {
				mark = "✗"
			}
			fmt.Fprintf(w, "%s %s\n", mark, v.Path)
		}
	})
	return cmp.Or(err, errors.Join(errs...))
}

// verifyOne reads every byte; what is not finite is a warning.
func verifyOne(v *verified) error {
	if machine.Exists(filepath.Join(v.Path, "manifest.json")) {
		r, err := checkpoint.Open(v.Path)
		if err != nil {
			return err
		}
		defer r.Close()
		if err := r.Verify(); err != nil {
			return err
		}
	}
	src, err := openAny(v.Path)
	if err != nil {
		return err
	}
	defer src.Close()
	for _, t := range src.Tensors() {
		raw := make([]byte, t.Bytes)
		ranges := make([][2]int, len(t.Shape))
		for i, n := range t.Shape {
			ranges[i] = [2]int{0, n}
		}
		if err := src.ReadRanges(t.Name, ranges, raw); err != nil {
			return err
		}
		if nan, inf := checkpoint.NonFinite(t.DType, raw); nan+inf > 0 {
			v.Warnings = append(v.Warnings, fmt.Sprintf("tensor %s has %d NaN and %d infinite values",
				t.Name, nan, inf))
		}
	}
	return nil
}

// ckptPruneCommand removes old checkpoints; the latest is never among them.
func ckptPruneCommand() *cobra.Command {
	c := &cobra.Command{Use: "prune DIR --keep N",
		Short: "Remove all but the newest checkpoints; the latest always stays", Args: cobra.ExactArgs(1)}
	keep := c.Flags().Int("keep", 2, "checkpoints to keep")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *keep < 1 {
			return exit.Usagef("ckpt prune: --keep %d: want 1 or more, since the latest always stays", *keep)
		}
		if _, err := checkpoint.Latest(args[0]); err != nil {
			return err
		}
		removed, err := checkpoint.Prune(checkpoint.OS, args[0], *keep)
		return cmp.Or(cli.Emit(c, removed, func(w io.Writer) {
			for _, p := range removed {
				fmt.Fprintln(w, "removed", p)
			}
		}), err)
	}
	return c
}
