package ckpt

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// begin names the conversion by all that its bytes follow from: the names, sizes and times of the files of
// what is read, the flags, and the program.
func (o *conversion) begin(src, dst string) error {
	o.src, o.goal = src, o.to
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %d %v %t %t %t %d %q %d %d %d %d %d %t\n", o.to, o.dtype, o.divisible, o.grid, o.average,
		o.merge, o.noOptim, o.shard, o.quantize, o.upcycle, o.each, o.seed, o.calibrate.Tokens, o.calibrate.Group,
		o.calibrate.ActOrder)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for _, path := range []string{program, src, o.like, o.base, o.calibrate.File} {
		if path == "" {
			continue
		}
		if err := stamp(h, path, dst); err != nil &&
			path != o.base { // a base may be the name of a repository
			return err
		}
	}
	o.key = fmt.Sprintf("%x", h.Sum(nil)[:16])
	o.journal = checkpoint.NewJournal(dst, o.key)
	return nil
}

// stamp writes names, sizes and times of the files of a path to w, without those of a destination that lies there.
func stamp(w io.Writer, path, dst string) error {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // who opens it says so
	} else if err != nil {
		return err
	}
	return filepath.WalkDir(real, func(name string, e fs.DirEntry, err error) error {
		for _, mine := range []string{filepath.Clean(dst), stage(dst), checkpoint.JournalPath(dst),
			checkpoint.JournalPath(stage(dst))} {
			if name == mine && err == nil {
				if e.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(name) // behind links, as those of a hub's cache
		if err != nil {
			fmt.Fprintf(w, "%q\n", name)
			return nil //nolint:nilerr // a link to nothing is one whatever it will be
		}
		_, err = fmt.Fprintf(w, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		return err
	})
}

// vacant refuses a destination that has files of something else than the same conversion, interrupted.
func (o *conversion) vacant(dst string) error {
	same, other := o.journal.Begun()
	if same || o.overwrite {
		return nil
	}
	if other {
		return exit.Usagef("%s is of a conversion that was interrupted, of another source or with other flags, "+
			"or whose source has changed since: repeat that one, or say --overwrite", dst)
	}
	if o.to == "gguf" {
		if machine.Exists(dst) {
			return exit.Usagef("%s exists: name another file, or say --overwrite", dst)
		}
		return nil
	}
	old, err := os.ReadDir(dst)
	if err == nil && len(old) > 0 {
		return exit.Usagef("%s is not empty (it has %s): name another directory, or say --overwrite", dst,
			old[0].Name())
	}
	return nil
}

// stage is the Hugging Face directory by way of which a conversion to dst goes, hidden beside it, and
// stageDone the file in it that says that it is whole, by the conversion's key.
func stage(dst string) string {
	dir, base := filepath.Split(filepath.Clean(dst))
	return filepath.Join(dir, "."+base+".stage")
}

const stageDone = ".whole"

// stageKey is the key of the conversion whose stage is whole, "" for none.
func (o *conversion) stageKey(dst string) string {
	text, _ := os.ReadFile(filepath.Join(stage(dst), stageDone)) // where there is none it is none
	return string(text)
}

// between makes a Hugging Face directory of src beside dst, or takes that of the same conversion which was
// interrupted, and removes it when then is done with it.
func (o *conversion) between(src, dst string, then func(dir string) error) (err error) {
	dir := stage(dst)
	if o.stageKey(dst) != o.key {
		first := *o
		first.to, first.journal = "hf", checkpoint.NewJournal(dir, o.key)
		if same, _ := first.journal.Begun(); !same {
			if err := errors.Join(os.RemoveAll(dir), first.journal.Drop()); err != nil {
				return err
			}
		}
		if err := first.folder(src, dir, ""); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		err := os.WriteFile(filepath.Join(dir, stageDone), []byte(o.key), 0o600)
		if err = errors.Join(err, first.journal.Drop()); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	if err := then(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return os.RemoveAll(dir)
}
