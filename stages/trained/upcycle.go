package trained

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// Upcycle makes of a dense model's Hugging Face directory src one of a mixture, with so many copies of each
// MLP as experts of which a token goes to some, and routers at random from a seed.
func Upcycle(src, dst string, experts, each int, seed uint64) error {
	c, err := configs.ReadModel(src)
	if err != nil {
		return err
	}
	dense, err := family.Build(c, 0)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if c, err = family.Upcycled(c, experts, each); err != nil {
		return exit.With(err, exit.Usage)
	}
	m, err := family.Build(c, 0)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	dir, err := checkpoint.OpenDir(src)
	if err != nil {
		return err
	}
	defer dir.Close()
	w, err := dense.OpenWeights(dir, src)
	if err != nil {
		return err
	}
	dtype := func(string) string { return w.SourceDType("") }
	sink, err := checkpoint.NewWriter(dst, m.HFTensors(dtype), ShardBytes)
	if err != nil {
		return err
	}
	if err := m.Export(sink, dtype, m.UpcycledFrom(dense, w, seed)); err != nil {
		_ = sink.Abort() // the first error is the one to report
		return err
	}
	if _, err := checkpoint.CopySideFiles(src, dst); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dst, "config.json"), c.HFConfig(LongName(strings.ToUpper(dtype("")))), 0o644)
}
