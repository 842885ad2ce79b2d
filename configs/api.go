package configs

import (
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/configs/source"
)

// Error names the place of a setting, what is wrong with it, and what would be right.
type Error = source.Error

// Origin is the place of a value.
type Origin = source.Origin

// Faults returns every *Error that err is made of, in order. A caller that prints one line a fault uses it.
func Faults(err error) []*Error { return source.Faults(err) }

// SFTFormat is an entry of a file of LoongForge's --sft-dataset-config.
type SFTFormat = loong.SFTFormat

// SFTFormats returns the entries of a file by name, or those that LoongForge comes with for "". Errors are
// *Error values.
func SFTFormats(file string) (map[string]SFTFormat, error) { return loong.SFTFormats(file) }

// FindSFT returns one of them by name.
func FindSFT(file, name string) (SFTFormat, error) { return loong.FindSFT(file, name) }

// LoongFile says whether a file is a model file of LoongForge's. A file that cannot be read is none.
func LoongFile(path string) bool { return loong.IsFile(path) }
