package run

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// stages tells how busy each stage of the training data's pipeline was, over the run, and which one was
// busiest.
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
