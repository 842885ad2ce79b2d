package configs_test

// Families, formats, optimizers and schedules register what configurations may name; the tests of this
// package read models of all of them.
import (
	_ "github.com/lfactor/lfactor/dataset/format"
	_ "github.com/lfactor/lfactor/pipeline/schedule"
	_ "github.com/lfactor/lfactor/stages/family/all"
	_ "github.com/lfactor/lfactor/stages/optim"
)
