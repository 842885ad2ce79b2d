package run

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/dataset"
)

// stages tells how busy each stage of the training data's pipeline was, over the run, and which one was busiest.
func (d *data) stages() string {
	if d.train == nil {
		return ""
	}
	list, wall := d.train.Stages()
	var words []string
	for _, s := range list {
		words = append(words, fmt.Sprintf("%s %.1f %% of %d", s.Name, 100*s.Use(wall), s.Workers))
	}
	return fmt.Sprintf("%s  (busiest: %s)", strings.Join(words, "  "), dataset.Bottleneck(list, wall).Name)
}

// stageUse is stages in numbers.
func (d *data) stageUse() (out []record.StageUse) {
	if d.train == nil {
		return nil
	}
	list, wall := d.train.Stages()
	for _, s := range list {
		out = append(out, record.StageUse{Name: s.Name, Workers: s.Workers, Items: s.Items, Use: s.Use(wall)})
	}
	return out
}
